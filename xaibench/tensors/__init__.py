"""Device, precision, batches and random numbers."""
