"""The result of an audit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xaibench.auditing.findings import Finding
from xaibench.auditing.known_causes import KnownCauses
from xaibench.auditing.network_check import NetworkTest
from xaibench.auditing.questions import Question
from xaibench.auditing.sanity import SanityCheck
from xaibench.auditing.subject import Subject
from xaibench.auditing.verdicts import Verdict
from xaibench.core.files import atomic_path

if TYPE_CHECKING:
    import pandas as pd

#: Version of the format of ``audit.json``.
FORMAT = 1


@dataclass(frozen=True)
class Audit:
    """What was found about explanations of one network on given images.

    Attributes:
        verdicts: A verdict for each explainer.
        questions: The questions with scores of all explainers and controls.
        checks: The sanity checks.
        network: The test of whether the network is better than chance.
        findings: Images that somebody should look at.
        inapplicable: Explainers that were not tested, with the reason.
        record: What was audited and how: network, images, versions, settings, date.
        subject: Network and images.
        maps: Maps of the images by explainer and control.
        agreement: Mean rank correlation of the maps of each pair of explainers, ``[M, M]``.
        regions: The decisive regions that were found in the images.
    """

    verdicts: Sequence[Verdict]
    questions: Sequence[Question]
    checks: Sequence[SanityCheck]
    network: NetworkTest
    findings: Sequence[Finding]
    inapplicable: Mapping[str, str]
    record: Mapping[str, Any]
    subject: Subject
    maps: Mapping[str, Tensor]
    agreement: NDArray[np.float64]
    regions: KnownCauses

    @property
    def supported(self) -> list[str]:
        """The supported explainers, the most certain first."""
        chosen = sorted((v.p, v.explainer) for v in self.verdicts if v.outcome == "supported")
        return [explainer for _, explainer in chosen]

    @property
    def refuted(self) -> list[str]:
        """The refuted explainers."""
        return [v.explainer for v in self.verdicts if v.outcome == "refuted"]

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        if not self.network.passed:
            return (
                "No explanation can be supported: the network was not shown to be better than chance on these images."
            )
        if self.supported:
            return f"Supported: {', '.join(self.supported)}."
        return "None of the tested explanations is supported by these images."

    def table(self) -> pd.DataFrame:
        """Return one row per explainer: verdict, p-value, images needed, mean score per question, and why."""
        import pandas as pd

        rows = []
        for verdict in self.verdicts:
            row: dict[str, Any] = {"explainer": verdict.explainer, "verdict": verdict.outcome, "p": verdict.p}
            row |= {q.key: q.means()[verdict.explainer] for q in self.questions if not q.skipped}
            rows.append(row | {"images_needed": verdict.needed, "why": " ".join(verdict.reasons)})
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the maps as plain values, as ``audit.json`` contains it (``audit.schema.json``)."""
        questions = [
            {
                **{
                    name: getattr(q, name) for name in ("key", "truth", "title", "text", "skipped", "chance", "samples")
                },
                "means": {label: _plain(np.nanmean(scores)) for label, scores in q.scores.items()},
                "parts": {part: {k: _plain(v) for k, v in means.items()} for part, means in q.parts.items()},
            }
            for q in self.questions
        ]
        checks = [
            {
                **{name: getattr(c, name) for name in ("key", "title", "text", "limit", "fails", "skipped")},
                "means": {label: _plain(c.mean(label)) for label in c.values},
                "failed": [label for label in c.values if c.has_failed(label)],
            }
            for c in self.checks
        ]
        verdicts = [_plain(asdict(verdict)) for verdict in self.verdicts]
        findings = [
            {"key": f.key, "text": f.text, "images": [self.subject.ids[i] for i in f.images]} for f in self.findings
        ]
        network = asdict(self.network) | {"passed": self.network.passed}
        return {
            "format": FORMAT,
            "headline": self.headline,
            "record": _plain(dict(self.record)),
            "network_test": _plain(network),
            "verdicts": verdicts,
            "questions": questions,
            "sanity_checks": checks,
            "findings": findings,
            "not_tested": dict(self.inapplicable),
        }

    def write(self, directory: str | os.PathLike[str]) -> Path:
        """Write ``audit.json`` and the evidence sheet ``audit.html``.

        Args:
            directory: Made if it does not exist.

        Returns:
            Path of the page.
        """
        from xaibench.auditing.page import render

        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        for name, content in (("audit.json", text + "\n"), ("audit.html", render(self))):
            with atomic_path(folder / name) as path:
                path.write_text(content, encoding="utf-8")
        return folder / "audit.html"

    def __str__(self) -> str:
        lines = [self.headline, ""]
        width = max(map(len, (v.explainer for v in self.verdicts)), default=0)
        for verdict in sorted(self.verdicts, key=sort_key):
            needed = f" About {verdict.needed} images would decide." if verdict.needed else ""
            lines.append(f"{verdict.explainer:<{width}}  {verdict.outcome:<9}  {' '.join(verdict.reasons)}{needed}")
        lines += [f"{label:<{width}}  not tested {why}" for label, why in self.inapplicable.items()]
        lines += ["", *(f"{q.title}: not asked, {q.skipped}." for q in self.questions if q.skipped)]
        lines += [finding.text for finding in self.findings]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def sort_key(verdict: Verdict) -> tuple[int, float, str]:
    """Return the place of a verdict in tables: supported explainers first, the most certain first."""
    place = ("supported", "undecided", "refuted").index(verdict.outcome)
    return place, 1.0 if verdict.p != verdict.p else verdict.p, verdict.explainer


def _plain(value: Any) -> Any:
    """Convert to values that JSON has: nan becomes None, numbers of NumPy become Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, float | np.floating):
        return None if not np.isfinite(value) else float(value)
    return value
