"""Data sets in Parquet files and in tables of the ``datasets`` library.

:func:`~xaibench.data.write_parquet` writes ``data/{train,validation,test}.parquet`` with the columns ``image``
(float32 ``[C, H, W]``, or ``[C, D, H, W]`` of volumes), ``mask`` (bool ``[H, W]`` or ``[D, H, W]``, True = important)
and ``target`` (the class index, a ``ClassLabel`` of ``datasets.load_dataset``).
The :class:`~xaibench.types.DatasetInfo` and the parameters of the data set are in the footer, under ``xaibench``.
"""
