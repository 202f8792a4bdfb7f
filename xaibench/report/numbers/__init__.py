"""The numbers of the report."""
