"""Check a suite and plan its jobs."""
