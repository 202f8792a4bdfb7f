"""Data sets as Parquet files: bit-identical when read back, and compatible with the ``datasets`` library.

A folder contains ``data/{train,validation,test}-00000-of-0000N.parquet``, each with the columns

===========  ===========================================================================================================
``image``    the pixels: 8-bit images as PNG, all others as float32 ``[C, H, W]``
             (volumes: ``[C, D, H, W]``)
``mask``     the ground truth as a PNG, 255 = important, 0 = not important; slices of a volume are below one another
``target``   the class index
``preview``  only for float32 images: a PNG of the image for viewing, with 0 as middle gray; not read back
===========  ===========================================================================================================

and the :class:`~xaibench.types.DatasetInfo` and the parameters of the data set in its footer, under ``xaibench``.
"""
