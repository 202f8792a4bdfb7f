"""Metrics that ask the explainer."""
