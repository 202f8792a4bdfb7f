"""Certified networks: by construction it is known which pixels of an image they use."""
