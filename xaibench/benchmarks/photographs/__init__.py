"""Photographs with annotated objects and pretrained networks: the suites."""
