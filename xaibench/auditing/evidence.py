"""All numbers of an audit, as ``audit.json`` contains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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

#: Version of the format of ``audit.json``, and the file of its JSON schema.
FORMAT, SCHEMA = 1, Path(__file__).with_name("audit.schema.json")


@dataclass(frozen=True)
class Evidence:
    """The evidence on explanations of one network, collected on given images.

    Attributes:
        verdicts: A verdict for each explainer.
        questions: The questions with scores of all explainers and controls.
        checks: The sanity checks.
        network: The test of whether the network is better than chance.
        findings: Images that should be looked at.
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the maps as plain values, as ``audit.json`` contains it (``audit.schema.json``)."""
        questions = [
            {
                **{name: getattr(q, name) for name in ("key", "truth", "title", "text", "skipped", "samples")},
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
