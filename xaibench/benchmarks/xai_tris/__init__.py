"""XAI-TRIS: tetrominoes on noise, with the ground truth known by construction."""
