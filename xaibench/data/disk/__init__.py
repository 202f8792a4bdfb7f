"""What all sets on disk share: which samples there are, how files are read and kept, and how a set is shared out."""
