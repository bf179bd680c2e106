"""Saying what was found: console, JSON, JUnit, HTML, Prometheus."""
