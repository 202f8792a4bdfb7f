"""A place where results of methods lie together: what is in it, who may trust it, and how a method gets there."""

__all__: list[str] = []
