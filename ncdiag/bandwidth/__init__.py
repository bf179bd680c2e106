"""Collective bandwidth: measure, expect, isolate."""
