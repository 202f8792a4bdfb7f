"""Metrics that call the model on changed images."""
