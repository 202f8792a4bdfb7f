"""Jobs that score maps."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from xaibench.component.parameters import Frozen
from xaibench.runner.parts import MetricPart, find_part
from xaibench.runner.plan.job_base import SMALL_PERTURBATIONS, Job, Stage
from xaibench.runner.plan.jobs import ExplainJob, Network
from xaibench.runner.suites.schema import NamedPart

_MB = 1 << 20


@dataclass(frozen=True, eq=False)
class ScoreJob(Job):
    """Score the maps of one explain job with one metric.

    Attributes:
        explain: The job of the maps.
        network: The network, for a metric that evaluates the model.
        metric: The metric.
        protocol: Protocol that decides the scores (:func:`xaibench.evaluation.protocol.resolve_protocol`).
        revision: Revision of the metric, of the protocols and of the scores of constant maps.
        raw: For a metric that relates another one to chance: the job of the other scores.
        blind: Model and parameters of a network that reads only some pixels, for a metric of the pixels that a network
            uses. The pixels that it reads replace the masks of the data set.
        sign: Whether maps are compared by magnitude or signed, if the metric depends on it; None passes them unchanged
            (:func:`xaibench.evaluation.protocol.resolve_sign`).
        answers_from: Job for another explainer with the same model outputs, which it leaves in the store.
        leaves_answers: Whether a later job uses the model outputs of this one. Neither ``answers_from`` nor this
            affects the scores.
    """

    stage: ClassVar[Stage] = "score"
    explain: ExplainJob
    network: Network | None
    metric: NamedPart
    protocol: str
    revision: str
    raw: ScoreJob | None = None
    blind: tuple[str, Frozen] | None = None
    sign: str | None = None
    answers_from: ScoreJob | None = dataclasses.field(default=None, compare=False)
    leaves_answers: bool = dataclasses.field(default=False, compare=False)

    @property
    def metric_part(self) -> MetricPart:
        """The metric with its parameters."""
        return find_part("metric", self.metric.use, self.metric.parameters)

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """The job whose model outputs are used."""
        return (self.answers_from,) if self.answers_from else ()

    @property
    def answers_key(self) -> str:
        """Hash of everything that decides the model outputs; equal for all jobs that can share them."""
        explain, network = self.explain, self.network.as_json() if self.network else None
        asked = [self.metric.use, self.metric.parameters.as_json(), self.revision, explain.precision]
        return hashlib.sha256(json.dumps([explain.data.key, explain.samples, network, *asked]).encode()).hexdigest()[
            :20
        ]

    @property
    def needs(self) -> tuple[Job, ...]:
        """The jobs of the maps and of the network; for a metric relative to chance, the job of the raw scores."""
        if self.raw is not None:
            return (self.raw,)
        return (*self.explain.parts, *(self.network.trainings if self.network else ()))

    @property
    def uses_device(self) -> bool:
        """Whether the metric evaluates the model."""
        return self.network is not None

    def _kind_fields(self) -> list[Any]:
        calls_explainer = self.metric_part.input_kind == "explainer"
        own = [self.metric.use, self.metric.parameters.as_json(), self.explain.data.image_shape]
        asked = [self.network.model, self.explain.precision] if self.network else []
        return [*own, *asked, self.explain.explainer.use if calls_explainer else ""]

    @property
    def can_be_small(self) -> bool:
        """Whether the data set can be made small."""
        return self.explain.data.can_be_small

    @property
    def amount(self) -> int:
        """Scored maps."""
        return self.explain.amount

    @property
    def disk_mb(self) -> float:
        """A Parquet file of three short columns."""
        return (2_250 + 15 * self.amount) / _MB

    @property
    def memory_mb(self) -> float:
        """The test samples and the maps."""
        return self.explain.held_mb

    def about(self) -> dict[str, object]:
        """Return the subject of the job (:meth:`Job.about`)."""
        return self.explain.about() | {"metric": self.metric.name}

    def small(self, size: int, perturbations: int | None = None) -> Self:
        """Return ``size`` maps of an explainer with at most ``SMALL_PERTURBATIONS`` perturbations."""
        if perturbations is None and self.explain.perturbations > SMALL_PERTURBATIONS:
            perturbations = SMALL_PERTURBATIONS
        network = self.network.small() if self.network else None
        raw = self.raw.small(size, perturbations) if self.raw else None
        alone = dataclasses.replace(self, answers_from=None, leaves_answers=False)
        return dataclasses.replace(alone, explain=self.explain.small(size, perturbations), network=network, raw=raw)

    def __str__(self) -> str:
        return f"{self.metric.name} of {self.explain}"
