"""The benchmark of PatternGAM: XAI-TRIS at 8×8 pixels with and without distractors, for global explanations."""
