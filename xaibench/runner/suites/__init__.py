"""Suites: reading and writing their TOML files."""
