"""Photographs and scans with annotated pixels, read from their official downloads.

Every data set is a subclass of :class:`~xaibench.data.disk.annotated_set.AnnotatedSet` in a file of its own. It opens a
folder and returns a :class:`~xaibench.data.disk.source.Source`, which lists the samples and reads them. The base class
finds the folder, selects classes, resizes images, makes the splits and converts to tensors.
"""

from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.lazy_split import DiskSplit
from xaibench.data.disk.source import Source

__all__ = ["AnnotatedSet", "DataFileError", "DiskSplit", "MissingDataError", "Source"]
