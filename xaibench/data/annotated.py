"""Photographs and scans whose important pixels people have marked, read from their official downloads.

A set is a file with a subclass of :class:`~xaibench.data.disk.annotated_set.AnnotatedSet`, which opens a folder and
returns
a :class:`~xaibench.data.disk.source.Source`: what samples there are, and how one is read. All that the sets have
in common (where they lie, which classes, sizes, splits, tensors) is done once, around it.
"""

from xaibench.data.disk.annotated_set import AnnotatedSet, data_root
from xaibench.data.disk.disk_split import DiskSplit
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.source import Source

__all__ = ["AnnotatedSet", "DataFileError", "DiskSplit", "MissingDataError", "Source", "data_root"]
