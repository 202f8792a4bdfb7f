"""Scoring of maps, explainers and custom methods on a data set, in one call."""

from xaibench.evaluation.evaluating import evaluate
from xaibench.evaluation.evaluation_table import Evaluation, Ranks
from xaibench.evaluation.map_files import MapFileError, read_maps, write_template
from xaibench.evaluation.meta_evaluation import MetaEvaluation, meta_evaluate
from xaibench.evaluation.protocol import PROTOCOLS, Protocol

__all__ = [
    "PROTOCOLS",
    "Evaluation",
    "MapFileError",
    "MetaEvaluation",
    "Protocol",
    "Ranks",
    "evaluate",
    "meta_evaluate",
    "read_maps",
    "write_template",
]
