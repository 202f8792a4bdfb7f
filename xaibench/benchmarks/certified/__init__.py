"""Images for networks whose used pixels are known by construction."""
