"""The evidence sheet of an audit: one page that needs no other file and can be printed."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from xaibench.auditing.evidence import Evidence
from xaibench.auditing.questions import Question
from xaibench.auditing.verdicts import CHANCE, Comparison, Verdict, sort_key
from xaibench.core.truth_kinds import TRUTHS
from xaibench.plots.files import encode
from xaibench.plots.maps import show
from xaibench.report.page.templating import format_duration, number, p_value, signed, template_environment

_TEMPLATES = Path(__file__).parent / "templates"
#: Images shown as good and as bad examples, and explainers shown for each.
_EXAMPLES, _SHOWN_EXPLAINERS = 3, 5


def render(audit: Evidence) -> str:
    """Render the evidence sheet.

    Args:
        audit: The audit.

    Returns:
        HTML with all pictures inside. No scripts.
    """
    shared = template_environment()
    own = jinja2.FileSystemLoader(_TEMPLATES)
    environment = shared.overlay(loader=jinja2.ChoiceLoader([own, *filter(None, [shared.loader])]))
    asked = [question for question in audit.questions if not question.skipped]
    return environment.get_template("audit.html.j2").render(
        audit=audit,
        verdicts=sorted(audit.verdicts, key=sort_key),
        facts=_facts(audit),
        truths=TRUTHS,
        kinds=[_kind(audit, kind, asked) for kind in dict.fromkeys(q.truth for q in asked)],
        skipped=[question for question in audit.questions if question.skipped],
        checks=[check for check in audit.checks if not check.skipped],
        pictures=_pictures(audit),
        findings=[(finding, _finding_picture(audit, finding.images, finding.key)) for finding in audit.findings],
        data=_data_address(audit),
        duration=format_duration(audit.record["seconds"]),
        number=number,
        p_value=p_value,
    )


def _facts(audit: Evidence) -> dict[str, dict[str, str]]:
    """Return what was audited and how, in three groups."""
    record = audit.record
    network, images, settings = record["network"], record["images"], record["settings"]
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
            "Shape": " × ".join(map(str, images["shape"])),
            "Content (sha256)": images["sha256"],
        },
        "Audit": {
            "Date": record["date"],
            "xaibench": record["versions"]["xaibench"],
            "PyTorch": record["versions"].get("torch", ""),
            "Passes per image and explainer": f"at most {settings['budget']}",
            "Explained output": settings["output"] or "that of each explainer’s paper",
            "Seed": str(settings["seed"]),
            "Controls": ", ".join(settings["controls"]),
            **{str(key): str(value) for key, value in record["description"].items()},
        },
    }


def _kind(audit: Evidence, kind: str, asked: Sequence[Question]) -> dict[str, Any]:
    """Return the questions of a kind of truth, with a forest plot of the explainers against their closest control."""
    own = [question for question in asked if question.truth == kind]
    rows = [
        (verdict, closest)
        for verdict in sorted(audit.verdicts, key=sort_key)
        if (closest := _closest_control(verdict, kind)) is not None
    ]
    labels = [verdict.explainer for verdict in sorted(audit.verdicts, key=sort_key)]
    return {
        "truth": kind,
        "questions": own,
        "labels": [*labels, *audit.record["settings"]["controls"]],
        "means": {question.key: question.means() for question in own},
        "plot": _forest(rows) if rows else "",
    }


def _closest_control(verdict: Verdict, kind: str) -> Comparison | None:
    """Return the comparison with the control that the explainer is least ahead of."""
    rows = [c for c in verdict.comparisons if c.about == kind and c.control != CHANCE]
    return min(rows, key=lambda c: c.difference, default=None)


def _forest(rows: Sequence[tuple[Verdict, Comparison]]) -> Markup:
    """Draw the difference of each explainer from its closest control, with 95 % intervals, as SVG."""
    left, right, step, width = 170, 150, 26, 720
    ends = [value for _, c in rows for value in (c.low, c.high, c.difference) if value == value] or [0.0]
    low, high = min(0.0, *ends), max(0.0, *ends)
    scale = (width - left - right) / ((high - low) or 1.0)

    def at(value: float) -> float:
        return left + (value - low) * scale

    height = step * len(rows) + 40
    parts = [
        f'<line class="zero" x1="{at(0):.1f}" y1="6" x2="{at(0):.1f}" y2="{height - 30}"/>',
        f'<text class="axis" x="{at(0):.1f}" y="{height - 12}" text-anchor="middle">0: as good as that control</text>',
    ]
    for index, (verdict, c) in enumerate(rows):
        y = 20 + step * index
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{Markup.escape(verdict.explainer)}</text>')
        if c.low == c.low:
            parts.append(
                f'<line class="{verdict.outcome}" x1="{at(c.low):.1f}" y1="{y}" x2="{at(c.high):.1f}" y2="{y}"/>'
            )
        parts.append(f'<circle class="{verdict.outcome}" cx="{at(c.difference):.1f}" cy="{y}" r="4.5"/>')
        label = f"{signed(c.difference, 2)} against {c.control}"
        parts.append(f'<text class="axis" x="{width - right + 12}" y="{y + 4}">{Markup.escape(label)}</text>')
    drawn = "".join(parts)
    title = "Mean difference of each explainer from its closest control, with 95 % intervals"
    return Markup(f'<svg class="forest" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{drawn}</svg>')


def _pictures(audit: Evidence) -> list[tuple[str, str]]:
    """Return maps of the best and worst images of the explainers that are recommended, as addresses of PNG files."""
    shown = audit.supported or [v.explainer for v in sorted(audit.verdicts, key=sort_key) if v.outcome == "undecided"]
    shown = shown[:_SHOWN_EXPLAINERS]
    if not shown:
        return []
    question = next(q for q in audit.questions if q.key == "interventions")
    order = np.argsort(-np.mean([question.scores[label] for label in shown], axis=0), kind="stable")
    sides = {"Images on which their scores are best": order[:_EXAMPLES], "Worst": order[::-1][:_EXAMPLES]}
    return [(title, _maps_picture(audit, [int(i) for i in which], shown)) for title, which in sides.items()]


def _finding_picture(audit: Evidence, images: Sequence[int], key: str) -> str:
    if not images:
        return ""
    shown = audit.supported or [v.explainer for v in sorted(audit.verdicts, key=sort_key) if v.outcome != "refuted"]
    return _maps_picture(audit, list(images)[:4], shown[:3], regions=key == "decisive_regions")


def _maps_picture(audit: Evidence, which: list[int], explainers: Sequence[str], *, regions: bool = False) -> str:
    subject = audit.subject
    masks = subject.masks[which].numpy() if subject.masks is not None else None
    if regions:
        masks = np.stack([_region_of(audit, index) for index in which])
    names = [f"{subject.ids[i]}: {subject.classes[int(subject.targets[i])]}" for i in which]
    images = subject.images[which].numpy()
    images = images if images.shape[1] in (1, 3) else images[:, :1]
    maps = {label: audit.maps[label][which].double().numpy() for label in explainers}
    figure = show(images, maps, masks, labels=names, samples=len(which))
    return "data:image/png;base64," + base64.b64encode(encode(figure, "png")).decode("ascii")


def _region_of(audit: Evidence, index: int) -> Any:
    image, regions = audit.subject.images[index], audit.regions
    return next(mask.numpy() for one, mask in zip(regions.images, regions.masks, strict=True) if one.equal(image))


def _data_address(audit: Evidence) -> str:
    text = json.dumps(audit.to_dict(), ensure_ascii=False, allow_nan=False)
    return "data:application/json;base64," + base64.b64encode(text.encode()).decode("ascii")
