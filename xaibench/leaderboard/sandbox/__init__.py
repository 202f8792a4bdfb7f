"""Run submitted methods in a separate process without network, ground-truth masks or access to the user's files."""
