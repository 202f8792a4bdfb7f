"""From a suite to jobs."""
