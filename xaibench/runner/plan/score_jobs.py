"""Jobs that score maps."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from xaibench.component.parameters import Frozen
from xaibench.runner.parts import MetricPart
from xaibench.runner.plan.job_base import Job, Keyed, Stage, hash_json
from xaibench.runner.plan.jobs import ExplainJob, Network

_MB = 1 << 20

#: Score jobs have at least one measurement of this share of all, so that a large suite has few jobs, and a small one
#: enough for all workers.
_SHARE = 160


@dataclass(frozen=True, eq=False)
class Measurement(Keyed):
    """The scores of one explain job by one metric.

    Attributes:
        explain: The job of the maps.
        network: The network, for a metric that evaluates the model.
        metric: The metric.
        protocol: Protocol that decides the scores (:func:`xaibench.evaluation.protocol.resolve_protocol`).
        revision: Revision of the metric, of the protocols and of the scores of constant maps.
        sign: Whether maps are compared by magnitude or signed, if the metric depends on it; None passes them unchanged
            (:func:`xaibench.evaluation.protocol.resolve_sign`).
        raw: For a metric that relates another one to chance: the measurement by the other metric.
        blind: Model and parameters of a network that reads only some pixels, for a metric of the pixels that a network
            uses. The pixels that it reads replace the masks of the data set.
    """

    explain: ExplainJob
    network: Network | None
    metric: MetricPart
    protocol: str
    revision: str
    sign: str | None = None
    raw: Measurement | None = None
    blind: tuple[str, Frozen] | None = None

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything that decides the scores."""
        network, raw = self.network and self.network.key, self.raw and self.raw.key
        settings = [self.metric.key, self.protocol, self.revision, self.blind, self.sign]
        return hash_json([self.explain.key, network, raw, *settings])


@dataclass(frozen=True, eq=False)
class ScoreJob(Job):
    """Score maps of one data set and network with the metrics of the suite.

    The maps of explainers that failed are left out. The result is complete if it has every measurement.

    Attributes:
        measurements: The scores to compute.
    """

    stage: ClassVar[Stage] = "score"
    measurements: tuple[Measurement, ...]

    @functools.cached_property
    def group(self) -> str:
        """Hash of the data and the network: first half of the key, by which results of an earlier suite are found."""
        first = self.measurements[0]
        return hash_json([first.explain.data.key, self.network and self.network.as_json()])

    @functools.cached_property
    def key(self) -> str:
        """Key of the results in the store: the group and a hash of all measurements."""
        return f"{self.group}-{self._make_key(kernels=True)}"

    @property
    def network(self) -> Network | None:
        """The network that made or evaluates the maps; None for maps of controls that are only compared with masks."""
        return self.measurements[0].network or self.measurements[0].explain.network

    @functools.cached_property
    def explains(self) -> tuple[ExplainJob, ...]:
        """The explain jobs of the maps."""
        return tuple(dict.fromkeys(map(operator.attrgetter("explain"), self.measurements)))

    @functools.cached_property
    def needs(self) -> tuple[Job, ...]:
        """The data, and the trainings if a metric evaluates the network."""
        network = self.measurements[0].network
        return (self.explains[0].data, *(network.trainings if network else ()))

    @functools.cached_property
    def waits_for(self) -> tuple[Job, ...]:
        """The jobs of the maps."""
        return tuple(part for explain in self.explains for part in explain.parts)

    @property
    def uses_device(self) -> bool:
        """Whether the metrics evaluate the model."""
        return self.measurements[0].network is not None

    @property
    def disk_mb(self) -> float:
        """A Parquet file of four short columns."""
        return sum(200 + 15 * each.explain.amount for each in self.measurements) / _MB

    @property
    def memory_mb(self) -> float:
        """The test samples and the maps of one explainer."""
        return max(explain.held_mb for explain in self.explains)

    def about(self) -> dict[str, object]:
        """Return the subject of the job (:meth:`Job.about`)."""
        return self.explains[0].data.about() | {"model": self.network.model if self.network else ""}

    def __str__(self) -> str:
        metrics = dict.fromkeys(each.metric.name for each in self.measurements)
        explainers = dict.fromkeys(each.explainer.name for each in self.explains)
        network = f"{self.network} on " if self.network else ""
        return f"{', '.join(metrics)} of {', '.join(explainers)} for {network}{self.explains[0].data}"


def score_jobs(measurements: Iterable[Measurement]) -> Iterator[ScoreJob]:
    """Divide measurements into jobs. A job has one data set and network, and only metrics that evaluate it or none.

    Measurements that share work stay together: a metric and its relation to chance, and a metric whose model outputs
    do not depend on the map.
    """
    groups: dict[Any, dict[Any, list[Measurement]]] = {}
    every = list(dict.fromkeys(measurements))
    for each in every:
        network = each.network or each.explain.network
        group = (each.explain.data.key, network and network.key, each.network is None)
        info = each.metric.info
        shared = each.metric.key if info.shared_scores else (each.explain.key, info.skill_of or each.metric.use)
        groups.setdefault(group, {}).setdefault(shared, []).append(each)
    for units in groups.values():
        jobs: list[list[Measurement]] = [[]]
        for unit in units.values():
            if len(jobs[-1]) * _SHARE >= len(every):
                jobs.append([])
            jobs[-1] += unit
        yield from map(ScoreJob, map(tuple, jobs))
