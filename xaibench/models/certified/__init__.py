"""Networks of which it is certain, by construction, what they use of an image."""
