"""Masks of whole data sets: tables of human annotations, and run-length encoded label maps."""
