"""Open a network by a reference, as users have it: a file, a name of a library, or a Python object."""
