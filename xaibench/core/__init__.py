"""Foundations shared by all parts: vocabulary, registry, messages, checks, files and the computing environment."""
