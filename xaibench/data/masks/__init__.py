"""Masks that people drew or labelled, apart from the images they belong to."""
