"""The record of an audit in the evidence sheet: network, images, settings and versions."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xaibench.auditing.candidates import Candidates
from xaibench.auditing.subject import Subject
from xaibench.core.truth_kinds import Truth
from xaibench.models.networks.pretrained_weights import weights_checksum
from xaibench.runner.environment import environment


def make_record(
    subject: Subject,
    candidates: Candidates,
    required: Sequence[Truth],
    train: bool,
    seconds: float,
    *,
    name: str,
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """Describe network, images, settings and versions, as values that JSON has.

    Args:
        subject: Network and images.
        candidates: Explainers and controls.
        required: Kinds of truth that support rests on.
        train: Whether a copy of the network was fine-tuned.
        seconds: Duration of the audit.
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
        "images": {
            "count": len(subject.images),
            "groups": len(np.unique(subject.groups)),
            "with_mask": 0 if subject.masks is None else int(subject.masks.flatten(1).any(1).sum()),
            "shape": list(subject.images.shape[1:]),
            "range": [float(subject.images.min()), float(subject.images.max())],
            "sha256": hashlib.sha256(subject.images.contiguous().numpy().tobytes()).hexdigest(),
        },
        "settings": {
            "budget": candidates.budget,
            "output": "a function of the outputs" if callable(output) else output,
            "seed": candidates.seed,
            "required": list(required),
            "controls": list(candidates.controls),
            "trained_copy": train,
        },
        "versions": {"xaibench": versions["xaibench"], "python": versions["python"], **versions["versions"]},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds, 1),
        "seconds_per_explainer": {label: round(t, 2) for label, t in candidates.seconds.items()},
        "description": dict(description),
    }
