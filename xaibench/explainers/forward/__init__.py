"""Explainers that only ask for the outputs of changed images."""
