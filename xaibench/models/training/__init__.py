"""Training: one network or many together, from scratch or from pretrained weights."""
