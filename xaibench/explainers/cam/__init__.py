"""The CAM family: explainers that weight feature maps."""
