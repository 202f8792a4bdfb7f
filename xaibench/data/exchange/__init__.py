"""Data sets as Parquet files: exact to the bit, and shown by whatever knows the ``datasets`` library.

A folder holds ``data/{train,validation,test}-00000-of-0000N.parquet``, each with the columns

===========  ===========================================================================================================
``image``    the pixels: 8-bit images as PNG, all others as float32 ``[C, H, W]``
``mask``     the ground truth as a PNG, 255 = important, 0 = not
``target``   the class
``preview``  only beside float32: the image as a PNG to look at, 0 in middle grey; never read back
===========  ===========================================================================================================

and the set's :class:`~xaibench.types.DatasetInfo` and parameters in its footer, under ``xaibench``.
"""
