"""Registered components (*parts*): data sets, models, explainers and metrics, with their metadata and parameters."""
