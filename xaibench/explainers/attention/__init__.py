"""Explainers of transformers."""
