"""Images for the networks of which it is certain what they use (:mod:`xaibench.models.certified`)."""
