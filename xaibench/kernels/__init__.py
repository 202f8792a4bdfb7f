"""Compiled versions of operations that exist elsewhere in plain form."""
