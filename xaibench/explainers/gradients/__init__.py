"""Explainers based on gradients."""
