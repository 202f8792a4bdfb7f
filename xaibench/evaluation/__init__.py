"""Score maps, explainers and one's own methods on a data set, in one call."""

from xaibench.evaluation.mapfile import MapFileError, read_maps, sample_ids, write_template
from xaibench.evaluation.protocol import PROTOCOLS, Protocol
from xaibench.evaluation.score import evaluate
from xaibench.evaluation.table import Evaluation

__all__ = [
    "PROTOCOLS",
    "Evaluation",
    "MapFileError",
    "Protocol",
    "evaluate",
    "read_maps",
    "sample_ids",
    "write_template",
]
