"""Metrics of the map alone."""
