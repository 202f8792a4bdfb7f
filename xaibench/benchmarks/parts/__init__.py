"""Parts: creatures of known parts on cluttered backgrounds; every part can be removed."""
