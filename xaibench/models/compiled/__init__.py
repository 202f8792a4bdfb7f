"""Inner loops of training, compiled."""
