"""Subset STIX Two Math (SIL Open Font License 1.1), from the package ziamath, for the formulas.

Browsers need a font with a table of mathematics for MathML. Few systems have one, and without it fractions, roots and
brackets are too small or not stretched.
"""

from __future__ import annotations

import io
from importlib.resources import files

from fontTools import subset
from fontTools.ttLib import TTFont

#: Path on the site.
FILE = "fonts/stix-two-math.woff"
#: Characters of the formulas: Latin, accents, Greek, punctuation, letterlike symbols, arrows, operators, brackets, and
#: the bold, italic and double-struck alphabets of mathematics.
_BLOCKS = [(0x20, 0x7E), (0xA0, 0xFF), (0x300, 0x308), (0x370, 0x3F6), (0x2010, 0x2044), (0x2061, 0x2063)]
_BLOCKS += [(0x2100, 0x214F), (0x2190, 0x2199), (0x21A6, 0x21A6), (0x21D0, 0x21D4), (0x2200, 0x22FF)]
_BLOCKS += [(0x2308, 0x230B), (0x27E8, 0x27E9), (0x29F5, 0x29F5), (0x2A00, 0x2A3F), (0x1D400, 0x1D467)]
_BLOCKS += [(0x1D538, 0x1D56B), (0x1D6A4, 0x1D6A5), (0x1D6E2, 0x1D71B)]


def woff() -> bytes:
    """Return the font file, including its license."""
    whole = (files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf").read_bytes()
    font = TTFont(io.BytesIO(whole), recalcTimestamp=False)
    options = subset.Options(name_IDs=["*"], layout_features=["ssty", "dtls", "flac", "ccmp"], hinting=False)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[code for first, last in _BLOCKS for code in range(first, last + 1)])
    cutter.subset(font)
    font.flavor = "woff"
    written = io.BytesIO()
    font.save(written)
    return written.getvalue()
