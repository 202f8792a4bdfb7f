"""What jobs do, and what is gathered of them."""
