"""The last kind of jobs: score maps."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from xaibench.core.frozen import Frozen
from xaibench.runner.plan import part_facts
from xaibench.runner.plan.job_base import SMALL_PERTURBATIONS, Job, Stage
from xaibench.runner.plan.jobs import ExplainJob, Network
from xaibench.runner.suites.suite_tables import NamedPart

_MB = 1 << 20


@dataclass(frozen=True)
class ScoreJob(Job):
    """One metric over the maps of one explain job.

    Attributes:
        network: For a metric that asks the model.
        raw: For one that reads another against chance: the job of those scores, from which these follow.
        blind: Model and parameters of a network that reads some pixels only, for a metric of what the network uses:
            these pixels are its masks, whatever the data set's are.
        answers_from: The job of another explainer's maps that asks the same network the same, and leaves its answers.
        leaves_answers: Whether a job after this one takes its answers. Neither decides the scores.
    """

    stage: ClassVar[Stage] = "score"
    explain: ExplainJob
    network: Network | None
    metric: NamedPart
    protocol: str
    revision: str
    raw: ScoreJob | None = None
    blind: tuple[str, Frozen] | None = None
    answers_from: ScoreJob | None = dataclasses.field(default=None, compare=False)
    leaves_answers: bool = dataclasses.field(default=False, compare=False)

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """The job whose answers it takes."""
        return (self.answers_from,) if self.answers_from else ()

    @property
    def answers_key(self) -> str:
        """Hash of all that decides what the network is asked whatever the map; the same for all that can share it."""
        explain, network = self.explain, self.network.as_json() if self.network else None
        asked = [self.metric.use, self.metric.parameters.as_json(), self.revision, explain.precision]
        return hashlib.sha256(json.dumps([explain.data.key, explain.samples, network, *asked]).encode()).hexdigest()[
            :20
        ]

    @property
    def needs(self) -> tuple[Job, ...]:
        """The jobs of the maps, and of the network where one is asked; or that of the scores that it starts from."""
        if self.raw is not None:
            return (self.raw,)
        return (*self.explain.parts, *(self.network.trainings if self.network else ()))

    @property
    def uses_device(self) -> bool:
        """Only a metric that asks the model."""
        return self.network is not None

    def _alike(self) -> list[Any]:
        asks = part_facts.metric_kind(self.metric.use) == "explainer"
        own = [self.metric.use, self.metric.parameters.as_json(), self.explain.data.image_shape]
        asked = [self.network.model, self.explain.precision] if self.network else []
        return [*own, *asked, self.explain.explainer.use if asks else ""]

    @property
    def can_be_small(self) -> bool:
        """Whether its data set can be made small."""
        return self.explain.data.can_be_small

    @property
    def amount(self) -> int:
        """Maps scored."""
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
        """See :meth:`Job.about`."""
        return self.explain.about() | {"metric": self.metric.name}

    def small(self, size: int, perturbations: int | None = None) -> Self:
        """So many maps, of an explainer that is not asked for many perturbations."""
        if perturbations is None and self.explain.perturbations > SMALL_PERTURBATIONS:
            perturbations = SMALL_PERTURBATIONS
        network = self.network.small() if self.network else None
        raw = self.raw.small(size, perturbations) if self.raw else None
        alone = dataclasses.replace(self, answers_from=None, leaves_answers=False)
        return dataclasses.replace(alone, explain=self.explain.small(size, perturbations), network=network, raw=raw)

    def __str__(self) -> str:
        return f"{self.metric.name} of {self.explain}"
