"""Networks: the small ones of XAI-TRIS, pretrained ones, and a user's own."""
