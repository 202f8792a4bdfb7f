"""Outputs of a network for images that differ in few pixels."""
