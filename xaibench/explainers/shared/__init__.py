"""Building blocks of the explainers: interface, explained output, access to layers, features of an image."""
