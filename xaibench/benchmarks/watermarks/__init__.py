"""Translucent watermarks that tell the class, are noise, or were never in training."""
