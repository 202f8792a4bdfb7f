"""Foundations shared by all packages: types, messages, checks, files and progress."""
