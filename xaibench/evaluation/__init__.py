"""Scoring of maps, explainers and custom methods on a data set, in one call."""

from xaibench.evaluation.evaluate import evaluate
from xaibench.evaluation.map_files import MapFileError, read_maps, write_template
from xaibench.evaluation.protocol import PROTOCOLS, SIGNS, Protocol, Sign
from xaibench.evaluation.table import Evaluation, Ranks

__all__ = [
    "PROTOCOLS",
    "SIGNS",
    "Evaluation",
    "MapFileError",
    "Protocol",
    "Ranks",
    "Sign",
    "evaluate",
    "read_maps",
    "write_template",
]
