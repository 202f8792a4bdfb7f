"""Machinery of all data sets on disk: listing samples, reading and caching files, downloads, and splits."""
