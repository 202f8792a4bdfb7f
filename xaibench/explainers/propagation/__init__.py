"""Explainers with modified backward passes: relevance propagation, DeepLIFT, patterns."""
