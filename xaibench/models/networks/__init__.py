"""Networks: the small ones of XAI-TRIS, pretrained ones and user-defined ones."""
