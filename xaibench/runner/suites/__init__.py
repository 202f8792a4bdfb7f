"""Suites: TOML files and what they become."""
