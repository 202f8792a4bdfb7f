"""Mosaics of labeled photographs."""
