"""Metrics of a map against a ground truth."""
