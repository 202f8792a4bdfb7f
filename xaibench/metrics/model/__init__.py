"""Metrics that ask the model."""
