"""Training of one network or of several together, from scratch or from pretrained weights."""
