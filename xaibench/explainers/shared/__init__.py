"""What explainers share: their interface, what is explained, layers, features."""
