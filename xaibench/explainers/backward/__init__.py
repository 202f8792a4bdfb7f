"""Explainers with backward passes of their own: relevance, DeepLIFT, patterns."""
