"""What the two papers found, held against a run."""
