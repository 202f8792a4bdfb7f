"""Measure whether the maps of a method depend on the network and on the image.

A method that knows the data can return a good map without explaining anything. Its maps stay the same when the weights
of the network are randomized, when another training of the network is explained, or for another image. The maps of the
run, which were scored, are compared with maps of changed networks, for the same batch of images: a method cannot tell
the measurement from the run by the number of images.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.messages import ParameterWarning
from xaibench.evaluation.apply import AppliedExplainer, round_maps, training_batches
from xaibench.metrics.shared.explainer_calls import layers_with_parameters, reinitialize
from xaibench.network.lending import copy_network
from xaibench.runner.plan.jobs import ExplainJob
from xaibench.runner.plan.plan import Plan
from xaibench.runner.stages.execute import has_maps, read_maps, read_network
from xaibench.runner.stages.samples import batches, read_data, read_test_split
from xaibench.runner.store import Store

#: Number of networks that are measured.
NETWORKS = 6
#: A map has changed with the weights or the image if its correlation with the original is at most this. The
#: explainers of xai-tris-8x8 change at least 85 % of their maps with the weights, and 25 % with the image.
SIMILAR = 0.9
#: A map has changed with the training if, scaled to norm 1, it differs by more than this. Good networks of the same
#: task often have nearly the same maps, but never equal ones.
EQUAL = 1e-6


def measure_dependence(plan: Plan, store: Store, explainer: str, device: str = "cpu") -> dict[str, float]:
    """Return the share of maps that change with the network and with the image.

    Args:
        plan: Plan of a finished run.
        store: Store of the run.
        explainer: Name of the explainer in the run.
        device: Device of the explainer.

    Returns:
        ``"weights"``: for the network with randomized weights, ``"training"``: for another training of it, both for
        the same image; ``"image"``: for another image of the same class that is not similar. In [0, 1]; an entry is
        missing if it cannot be measured, for example because there is one training. If the method fails on a changed
        network, its maps count as unchanged.
    """
    jobs = [job for job in plan.jobs if isinstance(job, ExplainJob) and job.explainer.name == explainer and job.network]
    jobs = [job for job in jobs if has_maps(store, job)]  # not of networks that the method does not support
    changed: dict[str, list[bool]] = {"weights": [], "training": [], "image": []}
    for job in _spread(jobs):
        maps = read_maps(store, job)
        if not len(maps):
            continue
        images, _, targets = next(batches(read_test_split(store, job.data), 0, len(maps)))
        maps = maps[: len(images)]
        first, second = _pairs_of_class(targets.tolist())
        dissimilar = _correlations(images[first], images[second]) <= SIMILAR
        changed["image"] += _have_changed(maps[first][dissimilar], maps[second][dissimilar])
        network = read_network(store, _network(job))
        variants = {"weights": _randomized(network)}
        if (other := _other_training(job, jobs)) is not None:
            variants["training"] = read_network(store, _network(other))
        for name, variant in variants.items():
            if _differ(network, variant, images):
                again = _explain(job, store, device, variant, images, targets)
                changed[name] += _have_changed(maps, maps if again is None else again, in_direction=name != "training")
    return {name: sum(each) / len(each) for name, each in changed.items() if each}


def _have_changed(one: Tensor, other: Tensor, *, in_direction: bool = True) -> list[bool]:
    """Compare maps ``[N, H, W]`` pairwise; two maps that are zero are the same."""
    changed = torch.linalg.vector_norm(_scaled(one) - _scaled(other), dim=1) > EQUAL
    if in_direction:
        changed &= _correlations(one, other) <= SIMILAR
    return list(changed.tolist())


def _scaled(maps: Tensor) -> Tensor:
    flat = maps.double().flatten(1)
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return flat / torch.where(norms > 0, norms, 1)


def _correlations(one: Tensor, other: Tensor) -> Tensor:
    """Return the Pearson correlation over the pixels, for images or maps ``[N, ...]``; 0 if one of them is constant.

    Maps that are positive everywhere, such as RISE's, have a high cosine similarity to each other.
    """
    flat = [values.double().flatten(1) for values in (one, other)]
    first, second = (_scaled(values - values.mean(dim=1, keepdim=True)) for values in flat)
    return (first * second).sum(dim=1)


def _spread(jobs: Sequence[ExplainJob]) -> list[ExplainJob]:
    """Select jobs of different architectures first, then of different data sets."""
    by_model: dict[str, dict[str, ExplainJob]] = {}
    for job in jobs:
        by_model.setdefault(_network(job).model, {}).setdefault(job.data.name, job)
    # Each architecture begins at another data set.
    turned = [list(own.values())[start % len(own) :] for start, own in enumerate(by_model.values())]
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*turned))
    return [job for job in rounds if job is not None][:NETWORKS]


def _network(job: ExplainJob) -> Any:
    assert job.network is not None
    return job.network


def _other_training(job: ExplainJob, jobs: Sequence[ExplainJob]) -> ExplainJob | None:
    """Return a job on another network of the same architecture that was trained for the same task."""

    def task(one: ExplainJob) -> Any:
        return _network(one).model, one.data.name, one.data.parameters

    return next((one for one in jobs if one.network != job.network and task(one) == task(job)), None)


def _explain(
    job: ExplainJob, store: Store, device: str, network: nn.Module, images: Tensor, targets: Tensor
) -> Tensor | None:
    """Return the maps of the explainer of a job for any network; None if it fails."""
    explainer = AppliedExplainer(
        job.explainer.use,
        job.explainer.parameters,
        seed=job.explain_seed,
        output=None if job.output == "default" else job.output,  # type: ignore[arg-type]
        device=device,
        training=lambda: training_batches(read_data(store, job.data)[0]["train"]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ParameterWarning)  # a suite sets its parameters on purpose
        try:
            return round_maps(explainer(network, images.clone(), targets))
        except Exception:
            return None


def _randomized(network: nn.Module) -> nn.Module:
    changed = copy_network(network)
    if any(True for _ in changed.parameters()):
        for index, layer in enumerate(layers_with_parameters(changed)):
            reinitialize(layer, 0, index)
    return changed


def _differ(one: nn.Module, other: nn.Module, images: Tensor) -> bool:
    """Return whether two networks are different functions of these images."""
    dtypes = [next((parameter.dtype for parameter in model.parameters()), images.dtype) for model in (one, other)]
    with torch.no_grad():
        outputs = [model(images.to(dtype)).double() for model, dtype in zip((one, other), dtypes, strict=True)]
    return not torch.allclose(*outputs)


def _pairs_of_class(targets: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the indices of the preceding sample of the same class, and of each sample that has one."""
    last: dict[int, int] = {}
    first, second = list[int](), list[int]()
    for number, target in enumerate(targets):
        if target in last:
            first.append(last[target])
            second.append(number)
        last[target] = number
    return first, second
