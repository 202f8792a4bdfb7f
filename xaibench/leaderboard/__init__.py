"""Leaderboard of explainers: results as files, their check and verification, and the site of all results.

A *result* is one method on one version of a suite. A *results repository* is a folder (or a data set of the Hugging
Face Hub) of results. :func:`split_run` turns a run into results, :func:`check` inspects a result without running
anything, :func:`verify` runs its method again and compares the scores, and :func:`write_site` turns a repository into
a static site.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
