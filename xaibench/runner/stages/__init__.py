"""Execution of each kind of job, and collection of the results into the run folder."""
