"""Explainers for transformers."""
