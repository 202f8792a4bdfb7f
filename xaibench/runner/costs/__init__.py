"""What a run will cost."""
