"""Leaderboard of explainers: submit a method, check and verify its result, and write the site of all results.

A *result* is one method on one version of a suite. A *results repository* is a folder (or a data set of the Hugging
Face Hub) of results. :func:`submit` writes a result, :func:`check` inspects it without running anything,
:func:`verify` runs the method again in a sandbox and compares the scores, and :func:`write_site` turns a repository
into a static site.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
