"""Metrics against what a network is known to use: which pixels, and how much of its output each of them is worth."""
