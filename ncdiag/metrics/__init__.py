"""Prometheus series of one node and of the engines it watches, the alert rules over them, and a dashboard."""
