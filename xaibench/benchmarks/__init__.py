"""Benchmarks: one folder each, with its data, networks, suites, published tables and claims.

The public functions of the benchmarks are imported on first use (PEP 562).
"""

from typing import TYPE_CHECKING, Any

from xaibench.core.lazy_names import load_public_name

if TYPE_CHECKING:
    from xaibench.benchmarks.certified.blind_networks import blind
    from xaibench.benchmarks.certified.disconnected_networks import disconnected
    from xaibench.benchmarks.certified.planted_triggers import checkerboard, plant_trigger
    from xaibench.benchmarks.certified.triggered_networks import triggered
    from xaibench.benchmarks.mosaics.image_grids import make_mosaics, select_confident
    from xaibench.benchmarks.watermarks.effects import WatermarkUse, watermark_use
    from xaibench.benchmarks.watermarks.networks import SmallCNN
    from xaibench.benchmarks.xai_tris.networks import CNN, LLR, MLP
    from xaibench.benchmarks.xai_tris.published_accuracy import paper_accuracy, paper_alpha
    from xaibench.benchmarks.xai_tris.released_pickles import read_released, write_released

__all__ = [
    "CNN",
    "LLR",
    "MLP",
    "SmallCNN",
    "WatermarkUse",
    "blind",
    "checkerboard",
    "disconnected",
    "make_mosaics",
    "paper_accuracy",
    "paper_alpha",
    "plant_trigger",
    "read_released",
    "select_confident",
    "triggered",
    "watermark_use",
    "write_released",
]

#: Public name -> module.
_HOME = {
    **dict.fromkeys(("CNN", "LLR", "MLP"), "xai_tris.networks"),
    **dict.fromkeys(("checkerboard", "plant_trigger"), "certified.planted_triggers"),
    **dict.fromkeys(("make_mosaics", "select_confident"), "mosaics.image_grids"),
    **dict.fromkeys(("paper_accuracy", "paper_alpha"), "xai_tris.published_accuracy"),
    **dict.fromkeys(("read_released", "write_released"), "xai_tris.released_pickles"),
    **dict.fromkeys(("WatermarkUse", "watermark_use"), "watermarks.effects"),
    "SmallCNN": "watermarks.networks",
    "blind": "certified.blind_networks",
    "disconnected": "certified.disconnected_networks",
    "triggered": "certified.triggered_networks",
}


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
