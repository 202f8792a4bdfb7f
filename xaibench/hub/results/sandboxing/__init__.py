"""A method of somebody, shut in: its sandbox, what asks it there, and the packages that it needs."""
