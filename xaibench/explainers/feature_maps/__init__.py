"""Explainers that weigh feature maps: the CAM family."""
