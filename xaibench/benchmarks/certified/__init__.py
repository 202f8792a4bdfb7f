"""Images for networks whose used pixels are known by construction (:mod:`xaibench.models.certified`)."""
