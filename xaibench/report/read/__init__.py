"""Reading a run folder."""
