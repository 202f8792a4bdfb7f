"""Statements of two papers, tested on a run."""
