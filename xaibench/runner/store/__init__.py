"""Storage of job results."""
