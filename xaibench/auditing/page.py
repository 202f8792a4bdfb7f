"""Result of an audit: its record, ``audit.json`` and the HTML page."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xaibench.auditing.findings import LEVEL, Finding, NetworkTest
from xaibench.auditing.images import Subject
from xaibench.auditing.plan import AuditPlan
from xaibench.auditing.questions import Question, Region
from xaibench.auditing.sanity import SanityCheck
from xaibench.auditing.verdicts import CHANCE, Comparison, Verdict, sort_key
from xaibench.core.files import write_file
from xaibench.core.truth_kinds import Truth
from xaibench.models.networks.pretrained_weights import weights_checksum
from xaibench.plots.maps import draw_tiles
from xaibench.report.page.templating import template_environment
from xaibench.runner.environment import environment

if TYPE_CHECKING:
    import pandas as pd


def make_record(
    subject: Subject,
    plan: AuditPlan,
    required: Sequence[Truth],
    train: bool,
    seconds: float,
    broken_assumptions: Sequence[str],
    *,
    name: str,
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """Describe network, images, settings and versions, as values that JSON has.

    Args:
        subject: Network and images.
        plan: How thorough the audit was, and its explainers and controls.
        required: Kinds of truth that support rests on.
        train: Whether a copy of the network was fine-tuned.
        seconds: Duration of the audit.
        broken_assumptions: Why the audit may be wrong.
        name: Name of the network.
        description: Further facts from the user.

    Returns:
        The record.
    """
    single = None if subject.labels is None or subject.labels.ndim != 1 else subject.labels
    output, versions = subject.output, environment()
    return {
        "network": {
            "name": name,
            "sha256": weights_checksum(subject.model),
            "parameters": sum(p.numel() for p in subject.model.parameters()),
            "classes": len(subject.classes),
            "accuracy": None if single is None else float((subject.targets == single).double().mean()),
        },
        "labels": [] if single is None else _count_labels(subject, single),
        "images": {
            "count": len(subject.images),
            "groups": len(np.unique(subject.groups)),
            "left_out": dict(subject.left_out),
            "with_mask": int(subject.masks.flatten(1).any(1).sum()),
            "shape": list(subject.images.shape[1:]),
            "range": [float(subject.images.min()), float(subject.images.max())],
            "sha256": hashlib.sha256(subject.images.contiguous().numpy().tobytes()).hexdigest(),
        },
        "settings": {
            "budget": plan.effort.budget,
            "effort": asdict(plan.effort),
            "output": "a function of the outputs" if callable(output) else output,
            "seed": plan.candidates.seed,
            "required": list(required),
            "controls": list(plan.candidates.controls),
            "trained_copy": train,
        },
        "versions": {"xaibench": versions["xaibench"], "python": versions["python"], **versions["versions"]},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds, 1),
        "seconds_per_explainer": {label: round(t, 2) for label, t in plan.candidates.seconds.items()},
        "broken_assumptions": list(broken_assumptions),
        "description": dict(description),
    }


def _count_labels(subject: Subject, labels: Tensor) -> list[dict[str, Any]]:
    """Return the output and the class of each label, with its number of images and of right answers."""
    names = {number: name for name, number in subject.label_names.items()}
    return [
        {
            "label": names.get(number),
            "output": number,
            "class": subject.classes[number],
            "images": int((labels == number).sum()),
            "right": int(((labels == number) & (subject.targets == number)).sum()),
        }
        for number in sorted(set(labels.tolist()))
    ]


def _describe_image(subject: Subject, index: int) -> dict[str, Any]:
    """Return the name, group, answer and label of an image; of independent labels, all that are above 0.5."""
    logits, target = subject.logits[[index]], int(subject.targets[index])
    label = None if subject.labels is None else subject.labels[index]
    return {
        "id": subject.ids[index],
        "group": int(subject.groups[index]),
        "class": subject.classes[target],
        "output": target,
        "answers": subject.answers(logits)[0].nonzero().flatten().tolist(),
        "probability": None if subject.head == "function" else float(subject.probabilities(logits)[0, target]),
        "label": None if label is None else int(label) if label.ndim == 0 else label.nonzero().flatten().tolist(),
    }


#: Version of the format of ``audit.json``, and the file of its JSON schema.
FORMAT, SCHEMA = 2, Path(__file__).with_name("audit.schema.json")


@dataclass(frozen=True)
class Audit:
    """The result of :func:`xaibench.audit`: the evidence on explanations of one network, collected on given images.

    ``print(audit)`` shows the verdicts, ``audit.table()`` the numbers, and ``audit.write(directory)`` writes the
    evidence sheet.

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
        regions: The question about the decisive regions that were found in the images.
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
    regions: Question

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
                "No explanation can be supported: the network was not shown to be better than chance on these images "
                f"({self.network.text})."
            )
        if self.supported:
            return f"Supported: {', '.join(self.supported)}."
        return "None of the tested explanations is supported by these images."

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the maps as plain values, as ``audit.json`` contains it (``audit.schema.json``).

        Returns:
            Numbers and texts that JSON can hold; NaN is None.
        """
        ids, classes = self.subject.ids, self.subject.classes

        def fields(one: object, *names: str) -> dict[str, Any]:
            return {name: getattr(one, name) for name in names}

        questions = [
            fields(q, "key", "truth", "title", "text", "skipped")
            | {"images": [ids[source] for source in q.sources], "groups": q.groups, "scores": q.scores}
            | {"means": q.means(), "parts": q.parts}
            for q in self.questions
        ]
        checks = [
            fields(c, "key", "title", "text", "limit", "fails", "outcome", "skipped")
            | fields(c, "values", "regions", "yardstick", "reasons")
            | {"p": {label: c.p(label) for label in c.yardstick}, "means": {label: c.mean(label) for label in c.values}}
            | {"failed": [label for label in c.values if c.has_failed(label)]}
            for c in self.checks
        ]
        regions = [
            {"image": ids[region.image], "window": [[side.start, side.stop] for side in region.window]}
            | {"place": region.place, "class": classes[region.target]}
            for region in self.regions.regions
        ]
        plain: dict[str, Any] = _plain(
            {
                "format": FORMAT,
                "headline": self.headline,
                "record": self.record,
                "network_test": asdict(self.network) | {"level": LEVEL, "passed": self.network.passed},
                "images": [_describe_image(self.subject, index) for index in range(len(ids))],
                "verdicts": [asdict(verdict) for verdict in self.verdicts],
                "questions": questions,
                "sanity_checks": checks,
                "findings": [fields(f, "key", "text") | {"images": [ids[i] for i in f.images]} for f in self.findings],
                "decisive_regions": regions,
                "not_tested": self.inapplicable,
            }
        )
        return plain

    def table(self) -> pd.DataFrame:
        """Summarize the verdicts.

        Returns:
            One row per explainer: verdict, corrected p-value, mean score per question, images needed, and why.
        """
        import pandas as pd

        rows = []
        for verdict in self.verdicts:
            row: dict[str, Any] = {"explainer": verdict.explainer, "verdict": verdict.outcome, "p": verdict.p}
            row |= {q.key: q.means()[verdict.explainer] for q in self.questions if not q.skipped}
            rows.append(row | {"images_needed": verdict.needed, "why": " ".join(verdict.reasons)})
        return pd.DataFrame(rows)

    def write(self, directory: str | os.PathLike[str]) -> Path:
        """Write ``audit.json`` and the evidence sheet ``audit.html``.

        Args:
            directory: Made if it does not exist.

        Returns:
            Path of the page.
        """
        folder = Path(directory)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        for name, content in (("audit.json", text + "\n"), ("audit.html", render(self))):
            write_file(folder / name, content, durable=True)
        return folder / "audit.html"

    def __str__(self) -> str:
        lines = [self.headline, ""]
        width = max(map(len, (v.explainer for v in self.verdicts)), default=0)
        for verdict in sorted(self.verdicts, key=sort_key):
            needed = f" About {verdict.needed} images would decide." if verdict.needed else ""
            lines.append(f"{verdict.explainer:<{width}}  {verdict.outcome:<9}  {' '.join(verdict.reasons)}{needed}")
        lines += [f"{label:<{width}}  not tested {why}" for label, why in self.inapplicable.items()]
        lines += ["", f"The network: {self.network.text}."]
        lines += [*(f"{q.title}: not asked, {q.skipped}." for q in self.questions if q.skipped)]
        lines += [finding.text for finding in self.findings]
        lines += [f"Not to be relied on (check_network=False): {why}" for why in self.record["broken_assumptions"]]
        return "\n".join(lines)

    __repr__ = __str__


def _plain(value: Any) -> Any:
    """Convert to values that JSON has: nan becomes None, numbers of NumPy become Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, float | np.floating):
        return None if not np.isfinite(value) else float(value)
    return value


#: Images shown as good and as bad examples, and explainers shown for each.
_EXAMPLES, _SHOWN_EXPLAINERS = 3, 4


def render(audit: Audit) -> str:
    """Render the evidence sheet.

    Args:
        audit: The audit.

    Returns:
        HTML with all pictures inside. No scripts.
    """
    asked = [question for question in audit.questions if not question.skipped]
    data = audit.to_dict()
    encoded = base64.b64encode(json.dumps(data, ensure_ascii=False, allow_nan=False).encode()).decode("ascii")
    return (
        template_environment()
        .get_template("audit/sheet.html.j2")
        .render(
            audit=audit,
            verdicts=sorted(audit.verdicts, key=sort_key),
            facts=_facts(audit),
            kinds=[_kind(audit, kind, asked) for kind in dict.fromkeys(q.truth for q in asked)],
            skipped=[question for question in audit.questions if question.skipped],
            checks=[check for check in audit.checks if not check.skipped],
            reasons=list(dict.fromkeys(why for check in audit.checks for why in check.reasons.values())),
            images=data["images"],
            name_labels=lambda label: _name_labels(label, audit.subject.classes),
            pictures=_pictures(audit),
            findings=[(finding, _finding_pictures(audit, finding)) for finding in audit.findings if finding.images],
            data=f"data:application/json;base64,{encoded}",
        )
    )


def _facts(audit: Audit) -> dict[str, dict[str, str]]:
    """Return what was audited and how, in three groups."""
    record = audit.record
    network, images, settings = record["network"], record["images"], record["settings"]
    effort = settings["effort"]
    accuracy = network["accuracy"]
    return {
        "Network": {
            "Name": network["name"],
            "Weights (sha256)": network["sha256"],
            "Parameters": f"{network['parameters']:,}",
            "Classes": str(network["classes"]),
            "Accuracy on these images": "no labels given" if accuracy is None else f"{accuracy:.1%}",
        },
        "Images": {
            "Number": str(images["count"]),
            "Independent groups": str(images["groups"]),
            "With a mask": str(images["with_mask"]),
            **({"Left out, as they cannot be read": ", ".join(lost)} if (lost := images["left_out"]) else {}),
            "Shape": " × ".join(map(str, images["shape"])),
            "Content (sha256)": images["sha256"],
        },
        "Audit": {
            "Date": record["date"],
            "xaibench": record["versions"]["xaibench"],
            "PyTorch": record["versions"].get("torch", ""),
            "Passes per image": f"{effort['budget']}, up to {effort['sampling']} with random numbers (see verdicts)",
            "Explained output": settings["output"] or "that of each explainer’s paper",
            "Seed": str(settings["seed"]),
            "Controls": ", ".join(settings["controls"]),
            **({"Not to be relied on": " ".join(broken)} if (broken := record["broken_assumptions"]) else {}),
            **{str(key): str(value) for key, value in record["description"].items()},
        },
    }


def _kind(audit: Audit, kind: str, asked: Sequence[Question]) -> dict[str, Any]:
    """Return the questions of a kind of truth, with a forest plot of the explainers against their closest control."""
    of_kind = [question for question in asked if question.truth == kind]
    verdicts = sorted(audit.verdicts, key=sort_key)
    compared = [(v, [c for c in v.comparisons if c.about == kind and c.control != CHANCE]) for v in verdicts]
    rows = [(v, min(own, key=lambda c: c.difference)) for v, own in compared if own]
    return {
        "truth": kind,
        "questions": of_kind,
        "labels": [*(v.explainer for v in verdicts), *audit.record["settings"]["controls"]],
        "means": {question.key: question.means() for question in of_kind},
        "plot": _forest(rows) if rows else None,
    }


def _forest(rows: Sequence[tuple[Verdict, Comparison]]) -> dict[str, Any]:
    """Place the difference of each explainer from its closest control on a scale, in percent of its width."""
    ends = [value for _, c in rows for value in (c.low, c.high, c.difference) if value == value] or [0.0]
    low, high = min(0.0, *ends), max(0.0, *ends)

    def at(value: float) -> float:
        return round(2 + 96 * (value - low) / ((high - low) or 1.0), 2)

    bars = [
        {
            "verdict": verdict,
            "comparison": c,
            "dot": at(c.difference),
            "line": (at(c.low), round(at(c.high) - at(c.low), 2)) if c.low == c.low else None,
        }
        for verdict, c in rows
    ]
    return {"zero": at(0), "bars": bars}


def _pictures(audit: Audit) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return maps of the best and worst images of the explainers that are recommended."""
    shown = audit.supported or [v.explainer for v in sorted(audit.verdicts, key=sort_key) if v.outcome == "undecided"]
    shown = shown[:_SHOWN_EXPLAINERS]
    if not shown:
        return []
    question = next(q for q in audit.questions if q.key == "interventions")
    order = np.argsort(-np.mean([question.scores[label] for label in shown], axis=0), kind="stable")
    sides = {"Images on which their scores are best": order[:_EXAMPLES], "Worst": order[::-1][:_EXAMPLES]}
    return [(title, [_sample(audit, int(i), shown) for i in which]) for title, which in sides.items()]


def _finding_pictures(audit: Audit, finding: Finding) -> list[dict[str, Any]]:
    shown = audit.supported or [v.explainer for v in sorted(audit.verdicts, key=sort_key) if v.outcome != "refuted"]
    regions = {region.image: region for region in audit.regions.regions if finding.key == "decisive_regions"}
    return [_sample(audit, index, shown[:3], regions.get(index)) for index in finding.images[:4]]


def _sample(audit: Audit, index: int, explainers: Sequence[str], region: Region | None = None) -> dict[str, Any]:
    """Return the pictures of an image and its maps with a description; the mask is a decisive region, if given."""
    subject = audit.subject
    mask = subject.masks[index].numpy()
    row = _describe_image(subject, index)
    lines = []
    if subject.head != "function":
        label = "" if row["label"] is None else f", label: {_name_labels(row['label'], subject.classes)}"
        lines.append(f"answer: {row['class']} ({row['probability']:.2f}){label}")
    if region is not None:
        mask = np.zeros(subject.images.shape[2:], bool)
        mask[region.window] = True
        lines.append(f"the region at the {region.place} brings about {subject.classes[region.target]}")
    image = subject.images[index].numpy()
    maps = {label: audit.maps[label][index].double().numpy() for label in explainers}
    files, slices = draw_tiles(image if len(image) in (1, 3) else image[:1], maps, mask)
    tiles = [(name, "data:image/png;base64," + base64.b64encode(png).decode("ascii")) for name, png in files]
    return {"id": row["id"], "lines": [*lines, *filter(None, [", ".join(slices)])], "tiles": tiles}


def _name_labels(label: int | list[int] | None, classes: Sequence[str]) -> str:
    numbers = [label] if isinstance(label, int) else label or []
    return ", ".join(classes[number] for number in numbers) or "–"
