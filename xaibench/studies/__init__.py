"""Questions to a finished run that more jobs answer."""

from xaibench.studies.metric_settings import robust_ranking

__all__ = ["robust_ranking"]
