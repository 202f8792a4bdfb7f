"""Verify a result: run its method again and compare the scores. This executes the method.

A method that knows the data can return a good map without explaining anything. Its maps stay the same when the weights
of the network are randomized, when another training of the network is explained, or for another image. The maps of the
run, which were scored, are compared with maps of changed networks, for the same batch of images: a method cannot tell
the measurement from the run by the number of images.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from xaibench._version import __version__
from xaibench.core.messages import ParameterWarning, listed
from xaibench.evaluation.apply import round_maps
from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.facts import FACTS, different_facts, read_facts, write_facts
from xaibench.leaderboard.repository import Manifest, ResultError, Verification, read_manifest, result_checksum
from xaibench.leaderboard.scores import read_scores, round_scores
from xaibench.leaderboard.suites import official_suite
from xaibench.metrics.shared.explainer_calls import randomized_copy
from xaibench.runfolder.descriptions import read_environment
from xaibench.runfolder.schema import SCORES
from xaibench.runner.plan.jobs import ExplainJob, Network
from xaibench.runner.plan.plan import Plan
from xaibench.runner.request import RunRequest
from xaibench.runner.stages.execute import has_maps, make_explainer, read_maps, read_network
from xaibench.runner.stages.samples import batches, read_test_split
from xaibench.runner.store import Store
from xaibench.runner.suite_run import RunProgress, run
from xaibench.scores.summary import is_scored_as_chance

if TYPE_CHECKING:
    import pandas as pd

_ROW_KEY = ["dataset", "model", "data_seed", "seed", "sample", "metric"]
#: Number of networks that are measured.
NETWORKS = 6
#: A map has changed with the weights or the image if its correlation with the original is at most this. The
#: explainers of xai-tris-8x8 change at least 85 % of their maps with the weights, and 25 % with the image.
SIMILAR = 0.9
#: A map has changed with the training if, scaled to norm 1, it differs by more than this. Good networks of the same
#: task often have nearly the same maps, but never equal ones.
EQUAL = 1e-6


def verify(
    folder: str | Path,
    *,
    explainers: Iterable[str] = (),
    datasets: Sequence[str] | None = None,
    work: str | Path | None = None,
    device: str = "cpu",
    progress: RunProgress | None = None,
    **run_settings: Any,
) -> Verification:
    """Run the method of a result again, compare the scores, and measure what its maps depend on.

    The method is executed with your rights. A method that is not part of the library must be installed, and is run only
    if it is named in ``explainers``. Run methods of strangers in a container without network and secrets.

    Args:
        folder: Folder of the result in its repository.
        explainers: Methods outside the library that may be executed, as ``"module:name"`` or ``"file.py:name"``.
        datasets: Verify only these data sets of the suite.
        work: Folder of the run; an interrupted run is continued. Default: a temporary folder.
        device: Device of training and of the method: ``"cpu"``, ``"auto"``, ``"cuda"``, ... Scores computed on a CPU
            are bit-identical only on a CPU.
        progress: Called when jobs end.
        **run_settings: Passed to :func:`xaibench.runner.run`.

    Returns:
        The outcome.

    Raises:
        ResultError: If the result does not pass :func:`xaibench.leaderboard.check`, its method may not be executed or
            fails, or the facts about its suite differ from those of the run.
    """
    place = Path(folder).absolute()
    if problems := check(place):
        raise ResultError(f"{place} is refused before it is run: {problems[0]}")
    manifest = read_manifest(place)
    _check_allowed(manifest, {name.replace(".py:", ":") for name in explainers})
    official = official_suite(manifest.suite)
    if manifest.version != official.version:
        raise ResultError(f"{place} is of an earlier version of {manifest.suite}, which this xaibench cannot run.")
    with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary:
        base = Path(work or temporary)
        base.mkdir(parents=True, exist_ok=True)
        file, name = base / "suite-again.toml", manifest.method
        file.write_text(official.with_explainer(name, manifest.entry, manifest.parameters), encoding="utf-8")
        done = run(file, base / "run", device=device, datasets=datasets, progress=progress, **run_settings)
        if done.failures:
            job, why = next(iter(done.failures.items()))
            raise ResultError(f"{name} failed: {why} (in {job}).")
        settings = {key: value for key, value in run_settings.items() if key not in ("engine", "address")}
        with RunRequest.of(file, done.folder, device=device, datasets=datasets, **settings).opened() as opened:
            changed = measure_dependence(opened.plan, opened.store, name, device)
        if datasets is None:
            again = write_facts(done.folder, base / FACTS / manifest.suite_folder)
            if different := different_facts(again, read_facts(place.parent.parent / FACTS / manifest.suite_folder)):
                raise ResultError(f"The facts about {manifest.suite_folder} have other {different} than its run.")
        rows = SCORES.read(done.folder)
        rows = rows[rows["explainer"] == name]
        largest, where = compare_scores(read_scores(place, 20_000_000), rows, partial=datasets is not None)
        commit = str(read_environment(done.folder).get("commit") or "")
        return Verification(manifest.folder, result_checksum(place), __version__, commit, largest, changed, where)


def _check_allowed(manifest: Manifest, allowed: set[str]) -> None:
    """Raise an error if the run would import something that is not part of the library and was not named."""
    names = [text for text in (manifest.entry, *_texts(manifest.parameters)) if ":" in text]
    if manifest.entry not in EXPLAINERS:
        names.append(manifest.entry)
    if foreign := sorted(set(names) - allowed):
        raise ResultError(
            f"{manifest.folder} runs {listed(foreign)}, which is not part of the library. Read and install it, and "
            f"name it: --explainers {','.join(foreign)}. It is executed with your rights."
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(each)


def compare_scores(submitted: pd.DataFrame, rerun: pd.DataFrame, *, partial: bool = False) -> tuple[float, str]:
    """Compare submitted scores with the scores of the method run again.

    Args:
        submitted: Scores as in ``scores.parquet``.
        rerun: Scores of the new run.
        partial: Whether only some cells were run again.

    Returns:
        The largest absolute difference after rounding as stored scores are, and its data set, model and metric. It is
        infinite if one side has rows that the other lacks, a score is undefined on one side, or a map was scored as
        chance on one side.
    """
    text = dict.fromkeys(SCORES.text, object)
    one, other = submitted.astype(text), rerun.astype(text)
    if partial:
        one = one[one["dataset"].isin(set(other["dataset"]))]
    both = one.merge(other, on=_ROW_KEY, how="outer", suffixes=("", "_again"), indicator=True)
    if not len(both):
        return 0.0, ""
    left, right = (round_scores(both[name].to_numpy(float)) for name in ("value", "value_again"))
    chance = [is_scored_as_chance(both[name]).to_numpy() for name in ("reason", "reason_again")]
    matched = (both["_merge"] == "both").to_numpy()
    for name in ("correct", "scored"):  # what the networks answered is missing in results of older versions
        matched = matched & (both[name] == both[f"{name}_again"]).fillna(True).to_numpy(bool)
    matched &= (chance[0] == chance[1]) & (np.isnan(left) == np.isnan(right))
    difference = np.where(matched, np.where(np.isnan(left), 0.0, np.abs(left - right)), np.inf)
    worst = int(difference.argmax())
    return float(difference[worst]), " ".join(str(both[name].iloc[worst]) for name in ("dataset", "model", "metric"))


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
    jobs = [job for job in plan.jobs if isinstance(job, ExplainJob) and job.explainer.name == explainer]
    # Networks that the method does not support have no maps.
    explained = [(job, job.network) for job in jobs if job.network is not None and has_maps(store, job)]
    changed: dict[str, list[bool]] = {"weights": [], "training": [], "image": []}
    for job, used in _spread(explained):
        maps = read_maps(store, job)
        if not len(maps):
            continue
        images, _, targets = next(batches(read_test_split(store, job.data), 0, len(maps)))
        maps = maps[: len(images)]
        classes = targets.tolist()
        second = [number for number, target in enumerate(classes) if target in classes[:number]]
        # The preceding sample of the same class.
        first = [max(other for other in range(number) if classes[other] == classes[number]) for number in second]
        dissimilar = _correlations(images[first], images[second]) <= SIMILAR
        changed["image"] += _have_changed(maps[first][dissimilar], maps[second][dissimilar])
        network = read_network(store, used)
        has_weights = any(True for _ in network.parameters())
        variants = {"weights": randomized_copy(network, 0) if has_weights else network}
        trainings = [other for one, other in explained if _task(one, other) == _task(job, used) and other != used]
        if trainings:
            variants["training"] = read_network(store, trainings[0])
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


def _spread(explained: Sequence[tuple[ExplainJob, Network]]) -> list[tuple[ExplainJob, Network]]:
    """Select jobs of different architectures first, then of different data sets."""
    by_model: dict[str, dict[str, tuple[ExplainJob, Network]]] = {}
    for job, network in explained:
        by_model.setdefault(network.model, {}).setdefault(job.data.name, (job, network))
    # Each architecture begins at another data set.
    turned = [list(own.values())[start % len(own) :] for start, own in enumerate(by_model.values())]
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*turned))
    return [pair for pair in rounds if pair is not None][:NETWORKS]


def _task(job: ExplainJob, network: Network) -> tuple[Any, ...]:
    return network.model, job.data.name, job.data.parameters


def _explain(
    job: ExplainJob, store: Store, device: str, network: nn.Module, images: Tensor, targets: Tensor
) -> Tensor | None:
    """Return the maps of the explainer of a job for any network; None if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ParameterWarning)  # a suite sets its parameters on purpose
        try:
            return round_maps(make_explainer(job, store, device)(network, images.clone(), targets))
        except Exception:
            return None


def _differ(one: nn.Module, other: nn.Module, images: Tensor) -> bool:
    """Return whether two networks are different functions of these images."""
    dtypes = [next((parameter.dtype for parameter in model.parameters()), images.dtype) for model in (one, other)]
    with torch.no_grad():
        outputs = [model(images.to(dtype)).double() for model, dtype in zip((one, other), dtypes, strict=True)]
    return not torch.allclose(*outputs)
