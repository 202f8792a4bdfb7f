"""Photographs and scans whose important pixels people have marked, read from their official downloads.

A set is a file with a subclass of :class:`~xaibench.data.annotated.base.AnnotatedSet`, which opens a folder and returns
a :class:`~xaibench.data.annotated.source.Source`: what samples there are, and how one is read. All that the sets have
in common (where they lie, which classes, sizes, splits, tensors) is done once, around it.
"""

from xaibench.data.annotated.base import AnnotatedSet, data_root
from xaibench.data.annotated.reading import DataFileError, MissingDataError
from xaibench.data.annotated.source import Source
from xaibench.data.annotated.split import DiskSplit

__all__ = ["AnnotatedSet", "DataFileError", "DiskSplit", "MissingDataError", "Source", "data_root"]
