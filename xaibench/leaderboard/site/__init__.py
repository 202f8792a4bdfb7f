"""Static site of a results repository. Numbers, templates and scripts are shared with the report page."""

__all__: list[str] = []
