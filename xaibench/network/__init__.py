"""Networks under test: their outputs, what is assumed of them, and lending them without a change."""
