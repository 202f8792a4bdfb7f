"""A static site from a results repository: who is best by which kind of truth, and how sure that is.

Numbers, templates and scripts are those of the report page; here is what spans several results.
"""

__all__: list[str] = []
