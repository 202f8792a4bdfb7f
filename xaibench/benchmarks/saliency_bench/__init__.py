"""Saliency-Bench: its suites, published tables and claims."""
