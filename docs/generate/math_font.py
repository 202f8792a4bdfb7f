"""The font of the formulas: STIX Two Math (SIL Open Font License 1.1) from the package ziamath, cut to what they need.

Browsers set MathML in a font that has a table of mathematics. Few systems have one, and without it fractions, roots and
brackets are set too small or not stretched.
"""

from __future__ import annotations

import io
from importlib.resources import files

from fontTools import subset
from fontTools.ttLib import TTFont

#: Where it lies on the site.
FILE = "fonts/stix-two-math.woff"
#: Latin, accents, Greek, punctuation, letterlike symbols, arrows, operators, brackets, alphabets of mathematics.
_BLOCKS = [(0x20, 0x17F), (0x2C6, 0x2DD), (0x300, 0x338), (0x370, 0x3FF), (0x2010, 0x2063), (0x20D0, 0x20F0)]
_BLOCKS += [
    (0x2100, 0x214F),
    (0x2190, 0x22FF),
    (0x2300, 0x23FF),
    (0x27C0, 0x27FF),
    (0x29F5, 0x2AFF),
    (0x1D400, 0x1D7FF),
]


def woff() -> bytes:
    """The file, with the license it carries."""
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
