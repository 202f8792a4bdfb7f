"""Metrics for networks that provably use only some of the pixels."""
