"""Metrics of the stability of a map under small changes of the image."""
