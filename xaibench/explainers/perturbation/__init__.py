"""Explainers that only evaluate the network on perturbed images."""
