"""Test published metrics that are not registered on known maps: tables of docs/metrics-tested.md.

    python docs/generate/rejected_trials.py     # five minutes; writes the tables of rejected metrics and of calls

The trials are the same as in ``metric_trials.py``.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from metric_trials import PAGE, SAMPLES, SHOWN, WAYS, share_text, write_tables
from rejected_metrics import REJECTED

import xaibench as xb
from xaibench.benchmarks import blind
from xaibench.meta_evaluation import MetaEvaluation, meta_evaluate
from xaibench.meta_evaluation.degradation import WORSE_MAPS
from xaibench.models import build

DRAWS = 200


class Call(NamedTuple):
    """A published metric that is a registered metric with other parameters.

    Attributes:
        name: Its name and paper.
        metric: The registered metric.
        parameters: Its parameters as shown.
        tried: Parameters that differ in the trials, whose images are small.
    """

    name: str
    metric: str
    parameters: Mapping[str, Any]
    tried: Mapping[str, Any]


CALLS = (
    Call(
        "IROF ([Rieger & Hansen 2020](https://arxiv.org/abs/2003.08747))",
        "deletion",
        {"segmentation": "slic", "baseline": "mean"},
        {"n_segments": 16, "steps": 16},
    ),
    Call(
        "Selectivity ([Montavon et al. 2018](https://arxiv.org/abs/1706.07979))",
        "deletion",
        {"segmentation": "grid", "output": "logit"},
        {"n_segments": 16, "steps": 16},
    ),
    Call(
        "Faithfulness correlation ([Bhatt et al. 2020](https://arxiv.org/abs/2005.00631))",
        "sensitivity_n",
        {"fraction": 0.2, "output": "probability"},
        {},
    ),
)


class Question(NamedTuple):
    """One of the questions of RFxG: why these classes, rather than others.

    Attributes:
        name: Its metric in the paper.
        classes: The classes that are explained; their mean is taken.
        others: The classes that they are contrasted with, or none.
    """

    name: str
    classes: tuple[int, ...]
    others: tuple[int, ...] = ()

    def logit(self, outputs: Tensor) -> Tensor:
        """Return the mean output ``[n]`` of the classes, minus that of the others."""
        mean = outputs[:, self.classes].mean(1)
        return mean - outputs[:, self.others].mean(1) if self.others else mean

    def probability(self, outputs: Tensor) -> Tensor:
        """Return the same for probabilities."""
        return self.logit(outputs.softmax(1))


QUESTIONS = (
    Question("CCS: why class 0 and not 1", (0,), (1,)),
    Question("CGC: why class 0 and not its group, 1 and 2", (0,), (1, 2)),
    Question("PGS: why the group 0, 1, 2", (0, 1, 2)),
    Question("CGS: why the group 0, 1, 2 and not 3, 4, 5", (0, 1, 2), (3, 4, 5)),
)


def questions_trials(draws: int) -> MetaEvaluation:
    """Return trials of ``deletion`` with the output of each question, on linear networks with six classes.

    The networks are blind to half of the pixels. The oracle is the gradient of the question's logit times the input.
    """
    rows = []
    for draw in range(draws):
        rng = np.random.default_rng([len(QUESTIONS), draw])
        visible = torch.from_numpy(rng.permutation(64).reshape(8, 8) < 32)
        model = blind(build("llr", (1, 8, 8), 6, seed=draw), visible).eval()
        images = torch.from_numpy(rng.standard_normal((SAMPLES, 1, 8, 8))).float()
        for question in QUESTIONS:
            pixels = images.clone().requires_grad_()
            (slope,) = torch.autograd.grad(question.logit(model(pixels)).sum(), pixels)
            oracle = (slope * images)[:, 0].double().numpy()
            for way, worsen in WORSE_MAPS.items():
                steps = worsen(oracle, visible.expand(SAMPLES, 8, 8).numpy(), rng)
                rises = np.diff([_deletion(model, images, step, question.probability) for step in steps])
                shares = {"right": (rises > 0).all(), "wrong": (rises < 0).any(), "one_right": 0.0, "one_wrong": 0.0}
                names = {"metric": question.name, "truth": "intervention", "degraded": way, "case": "linear"}
                rows.append(names | {"draw": draw} | shares)
    return MetaEvaluation(pd.DataFrame(rows), draws, SAMPLES)


def _deletion(model: Any, images: Tensor, maps: Any, output: Callable[[Tensor], Tensor]) -> float:
    return float(xb.deletion(model, images, torch.from_numpy(maps), None, output=output))


def rejected_rows(draws: int) -> Iterator[str]:
    """Yield a row per rejected metric and kind of truth."""
    for metric in REJECTED:
        info = metric.info  # type: ignore[attr-defined]
        found = meta_evaluate(metric, draws=draws // 8 if info.kind == "explainer" else draws, samples=SAMPLES)
        for (_, truth), verdict in found.verdicts().items():
            yield _row(
                f"{info.label} ({_source(info.citation)})", truth, SHOWN[verdict], *_shares(found, truth), info.pitfalls
            )


def _source(citation: str) -> str:
    """Return a citation as a link, such as ``[Agarwal et al. 2022](https://arxiv.org/abs/2203.06877)``."""
    first, *others = citation.partition(":")[0].split(", ")
    year, number = re.findall(r"\b20\d\d\b(?!\.)", citation)[0], citation.rpartition("arXiv ")[2]
    names = f"{first} et al." if len(others) > 1 else " & ".join([first, *others])
    return f"[{names} {year}](https://arxiv.org/abs/{number})"


def call_rows(draws: int) -> Iterator[str]:
    """Yield a row per published metric that is a call of a registered one."""
    for call in CALLS:
        given = dict(call.parameters) | dict(call.tried)
        found = meta_evaluate({call.metric: given}, draws=draws, samples=SAMPLES)
        verdict = SHOWN[found.verdicts()[call.metric, "intervention"]]
        yield _row(call.name, _call(call.metric, call.parameters), verdict, *_shares(found)[:2])
    found = questions_trials(draws // 8)
    for (name, _), verdict in found.verdicts().items():
        own = MetaEvaluation(found.trials[found.trials["metric"] == name], found.draws, SAMPLES)
        yield _row(
            f"[RFxG](https://arxiv.org/abs/2511.13081), {name}",
            "`deletion(output=…)`",
            SHOWN[verdict],
            *_shares(own)[:2],
        )


def _call(metric: str, parameters: Mapping[str, Any]) -> str:
    given = ", ".join(
        f'{name}="{one}"' if isinstance(one, str) else f"{name}={one}" for name, one in parameters.items()
    )
    return f"`{metric}({given})`"


def _shares(found: MetaEvaluation, truth: str = "intervention") -> list[str]:
    """Return the shares of right and wrong draws for each way of degrading; empty for ways that were not tried."""
    table = found.table()
    by_way = table[table["truth"] == truth].set_index("degraded").to_dict("index")
    return [share_text(by_way[way]) if way in by_way else "" for way in WAYS]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(heads: list[str], rows: Iterator[str]) -> str:
    return "\n".join([_row(*heads), "|" + "---|" * len(heads), *rows]) + "\n"


def main() -> None:
    warnings.simplefilter("ignore")
    heads = ["metric", "truth", "verdict", *WAYS.values(), "reason"]
    rejected = _table(heads, rejected_rows(DRAWS))
    heads = ["published metric", "call", "verdict", "moved", "noise"]
    calls = _table(heads, call_rows(DRAWS))
    write_tables("rejected", lambda before: rejected)
    write_tables("calls", lambda before: calls)
    print(f"wrote the tables of {PAGE}")


if __name__ == "__main__":
    main()
