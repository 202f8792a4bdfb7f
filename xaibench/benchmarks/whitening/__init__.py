"""Whitened data sets: whether explanations improve if pixels are decorrelated before training."""
