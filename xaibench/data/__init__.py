"""Data sets with known ground truth: the pixels that a correct attribution map highlights.

Functions that read and write files are imported on first use (PEP 562), because they need pyarrow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
