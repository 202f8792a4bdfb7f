"""Creatures of known body parts on cluttered backgrounds; every part can be removed."""
