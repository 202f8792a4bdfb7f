"""Submit a method: trial, run on a suite, and a result that can be published."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from xaibench.core.messages import listed
from xaibench.evaluation.apply import AppliedExplainer, is_inapplicable
from xaibench.leaderboard.manifest import CodeInfo, ResultError
from xaibench.leaderboard.method_source import MethodSource, is_library_control, on_import_path, stage_method
from xaibench.leaderboard.run_splitting import slugify, split_run
from xaibench.leaderboard.sandbox.packages import imported_packages
from xaibench.leaderboard.sandbox.worker import ForbiddenActionError, HiddenMasks
from xaibench.leaderboard.suite_text import (
    differences_from_official,
    official_suite,
    with_explainers,
    without_photographs,
)
from xaibench.runner.run import RunProgress, run
from xaibench.runner.suites.files import load_suite

#: The suite file in the folder of the code; hidden, so that it is not copied as code.
_SUITE_FILE = ".suite.toml"

#: Environment variables that are removed during a run.
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True)
class Trial:
    """Outcome of a short trial of a method.

    Attributes:
        seconds: Seconds per image.
        refused: Network name to reason, for networks that the method does not support.
        remarks: Remarks for the author.
    """

    seconds: float
    refused: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def try_method(source: MethodSource, parameters: Mapping[str, Any] | None = None, *, limit: float = 60.0) -> Trial:
    """Run a method on small networks and images, and check that it is deterministic.

    Args:
        source: The method.
        parameters: Its parameters.
        limit: Seconds after which no further network is tried.

    Returns:
        The outcome.

    Raises:
        ResultError: If the method fails, reads the masks of the training samples, or returns different maps on a second
            call, so that its scores could not be verified.
    """
    from xaibench.data import load
    from xaibench.models import build as build_model

    images, _, targets = load("xai-tris/lin-white-8x8", n_samples=100).test[:6]
    refused_actions: list[str] = []
    start, refused, remarks, asked = time.monotonic(), dict[str, str](), list[str](), 0
    with on_import_path(source.folder), torch.random.fork_rng(devices=[]):
        for name in ("mlp", "cnn"):
            if time.monotonic() - start > limit and asked:
                break
            torch.manual_seed(0)
            network = build_model(name, (1, 8, 8), 2).double().eval()
            hides = not is_library_control(source.entry)
            training = functools.partial(_training_samples, refused_actions if hides else None)
            method = AppliedExplainer(source.entry, parameters, seed=0, device="cpu", training=training)
            try:
                maps, again = method(network, images, targets), method(network, images, targets)
                alone = method(network, images[:1], targets[:1])
            except Exception as error:
                _check_actions(source.entry, refused_actions)
                if not is_inapplicable(error):
                    raise ResultError(
                        f"{source.entry} fails in its trial on a small {name}: {type(error).__name__}: {error}"
                    ) from error
                refused[name] = str(error)
                continue
            _check_actions(source.entry, refused_actions)
            asked += 2 * len(images) + 1
            remarks += _compare_maps(source.entry, name, maps, again, alone)
    if source.folder and (elsewhere := imported_packages(source.folder).elsewhere):
        remarks.append(
            f"it imports {listed(elsewhere)}, installed from a folder, a repository or a file, which others may not "
            "be able to get; move code of the method into its own package"
        )
    if not asked:
        raise ResultError(f"{source.entry} supports none of the tested networks: {'; '.join(refused.values())}")
    return Trial((time.monotonic() - start) / asked, refused, tuple(dict.fromkeys(remarks)))


def _training_samples(refused: list[str] | None) -> Any:
    """Return the training samples, without their masks if refused actions are recorded."""
    from xaibench.data import load

    images, masks, targets = load("xai-tris/lin-white-8x8", n_samples=100).train[:]
    if refused is None:
        return iter([(images, masks, targets)])

    def refuse(why: str) -> None:
        refused.append(why)
        raise ForbiddenActionError(why)

    return iter([(images, HiddenMasks(refuse), targets)])


def _check_actions(entry: str, refused: Sequence[str]) -> None:
    """Raise an error for forbidden actions, also if the method has caught the exception."""
    if refused:
        raise ResultError(
            f"{entry} is refused: {refused[0]}. Verification hides these masks; fit the method to images and targets "
            "only."
        )


def _compare_maps(entry: str, name: str, maps: torch.Tensor, again: torch.Tensor, alone: torch.Tensor) -> Iterator[str]:
    if not torch.equal(maps, again):
        raise ResultError(
            f"{entry} returns different maps on a second call (on a small {name}), so its scores cannot be verified. "
            "Use a random generator with a fixed seed, or add a field `seed`."
        )
    if not bool(maps.any()):
        yield f"all its maps of a small {name} are zero"
    if not torch.allclose(maps[:1], alone, rtol=1e-6, atol=1e-9 * float(maps.abs().max())):
        yield "its map of an image depends on the other images of the batch; scores may change with the batch size"


@dataclass(frozen=True)
class SubmissionInfo:
    """Information from the author; empty fields are derived from the code.

    Attributes:
        name: Name of the folder and in the scores.
        label: Display name.
        authors: Authors of the method.
        citation: The publication, as text or BibTeX.
        license: License of code and scores, as an identifier of the Hub.
        homepage: A web address.
        repository: Address of the source repository.
        commit: Commit in that repository.
        tuned_on: Names of metrics or suites that the method or its parameters were tuned on.
    """

    name: str = ""
    label: str = ""
    authors: tuple[str, ...] = ()
    citation: str = ""
    license: str = ""
    homepage: str = ""
    repository: str = ""
    commit: str = ""
    tuned_on: tuple[str, ...] = ()


def submit(
    method: str,
    suite: str | Path,
    repository: str | Path,
    *,
    info: SubmissionInfo | None = None,
    parameters: Mapping[str, Any] | None = None,
    work: str | Path | None = None,
    quick: bool = False,
    progress: RunProgress | None = None,
    on_trial: Any = lambda trial: None,
    **run_settings: Any,
) -> Path:
    """Try a method, run a suite with it, and write the result.

    Args:
        method: A listed explainer, ``package.module:name``, ``file.py`` or ``file.py:name``; functions that follow the
            template of EXACT are accepted unchanged.
        suite: Name or file of a suite.
        repository: Results repository; the result is written to ``METHOD/SUITE@VERSION`` below it.
        info: Information on the method.
        parameters: Parameters of the method.
        work: Folder of the run; an interrupted run is continued. Default: ``runs/submit-NAME``.
        quick: Use the small form of the suite.
        progress: Called when jobs end.
        on_trial: Called with the :class:`Trial` before the suite is run.
        **run_settings: Passed to :func:`xaibench.runner.run`: ``workers``, ``device``, ``store``, ``root``, ...

    Returns:
        The folder of the result.

    Raises:
        ResultError: If the method cannot be called, fails or is not deterministic, a job of the suite failed, or the
            suite uses images of a local folder.
        SuiteError: If there is no such suite.
    """
    info = info or SubmissionInfo()
    loaded, text = load_suite(suite, quick=quick)
    official = official_suite(loaded.name)
    if differences := differences_from_official(without_photographs(text), loaded.name):  # before it is run
        raise ResultError(
            f"{suite} is not {loaded.name} of the library: {listed(differences, 3)}. Results are of the library's "
            "suites."
        )
    place = Path(work) if work else Path("runs") / f"submit-{slugify(info.name or Path(method).name)}"
    place.mkdir(parents=True, exist_ok=True)
    source = stage_method(method, place / "code")
    name = slugify(info.name or source.name)
    with hide_secrets():
        on_trial(try_method(source, parameters))
        file = (source.folder or place) / _SUITE_FILE
        entry = {"use": source.entry} | dict(parameters or {})
        file.write_text(with_explainers(official, {name: entry}), encoding="utf-8")
        with on_import_path(source.folder):  # before other modules of that name
            done = run(file, place / "run", progress=progress, **run_settings)
    if done.failures:
        first = next(iter(done.failures.items()))
        raise ResultError(
            f"{len(done.failures)} jobs of the run in {done.folder} failed, such as {first[0]}: {first[1]}"
        )
    own = source.folder is not None
    about = {
        **{"name": name, "label": info.label or name, "entry": source.entry, "summary": source.summary},
        **({"citation": info.citation, "license": info.license} if own or info.citation or info.license else {}),
        **{"authors": info.authors, "homepage": info.homepage, "tuned_on": info.tuned_on},
    }
    if not own:  # listed explainers keep the library's metadata unless it is overridden
        about = {key: value for key, value in about.items() if value and (key != "label" or info.label)}
    needed = imported_packages(source.folder).pinned if source.folder else ()
    code = CodeInfo(repository=info.repository, commit=info.commit, requires=needed)
    with on_import_path(source.folder):
        (folder,) = split_run(
            done.folder, repository, methods=[name], about={name: about}, source=source.folder, code=code
        )
    return folder


@contextlib.contextmanager
def hide_secrets() -> Iterator[None]:
    """Remove tokens and passwords from the environment inside the block, so that submitted code cannot read them.

    Yields:
        Nothing.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if _SECRET_NAME.search(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)
