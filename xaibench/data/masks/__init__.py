"""Masks of whole sets at once: tables of masks that people drew, and label maps as runs."""
