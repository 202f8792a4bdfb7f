"""Metrics that compare a map with a ground truth."""
