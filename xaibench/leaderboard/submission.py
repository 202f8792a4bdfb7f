"""From a method to a result that can be published: tried for a minute, run on a suite, written with all it needs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from xaibench.core.messages import listed
from xaibench.evaluation.apply import AppliedExplainer, is_inapplicable
from xaibench.leaderboard.manifest import CodeInfo, ResultError
from xaibench.leaderboard.method_source import MethodSource, on_import_path, stage_method
from xaibench.leaderboard.run_splitting import slugify, split_run
from xaibench.leaderboard.sandbox.packages import imported_packages
from xaibench.leaderboard.suite_text import check_public_datasets, with_explainers
from xaibench.runner.run import RunProgress, run
from xaibench.runner.suites.files import load_suite

#: The suite of a submission, beside its code; hidden, so that it is not taken for code.
_SUITE = ".suite.toml"

#: Variables of the environment that a run does without.
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True)
class Trial:
    """What a minute with a method showed.

    Attributes:
        seconds: For one image.
        refused: The networks that it says it cannot treat, and why.
        remarks: What its author should know.
    """

    seconds: float
    refused: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def try_method(source: MethodSource, parameters: Mapping[str, Any] | None = None, *, limit: float = 60.0) -> Trial:
    """Ask a method about small networks and images: what it returns, whether twice the same, and how long it takes.

    Args:
        source: The method.
        parameters: Its own.
        limit: Seconds after which the networks that are left are not tried.

    Returns:
        What was found.

    Raises:
        ResultError: If it fails, or its maps are not the same the second time: then nobody could check its scores.
    """
    from xaibench.data import load
    from xaibench.models import build as build_model

    images, _, targets = load("xai-tris/lin-white-8x8", n_samples=100).test[:6]
    start, refused, remarks, asked = time.monotonic(), dict[str, str](), list[str](), 0
    with on_import_path(source.folder), torch.random.fork_rng(devices=[]):
        for name in ("mlp", "cnn"):
            if time.monotonic() - start > limit and asked:
                break
            torch.manual_seed(0)
            network = build_model(name, (1, 8, 8), 2).double().eval()
            method = AppliedExplainer(source.entry, parameters, seed=0, device="cpu", training=_few_samples)
            try:
                maps, again = method(network, images, targets), method(network, images, targets)
                alone = method(network, images[:1], targets[:1])
            except Exception as error:
                if not is_inapplicable(error):
                    raise ResultError(
                        f"{source.entry} fails in its trial on a small {name}: {type(error).__name__}: {error}"
                    ) from error
                refused[name] = str(error)
                continue
            asked += 2 * len(images) + 1
            remarks += _remarks(source.entry, name, maps, again, alone)
    if source.folder and (elsewhere := imported_packages(source.folder).elsewhere):
        remarks.append(
            f"it imports {listed(elsewhere)}, installed from a folder, a repository or a file, which others may not "
            "get; what is part of the method belongs into its package"
        )
    if not asked:
        raise ResultError(f"{source.entry} can treat no network: {'; '.join(refused.values())}")
    return Trial((time.monotonic() - start) / asked, refused, tuple(dict.fromkeys(remarks)))


def _few_samples() -> Any:
    from xaibench.data import load

    split = load("xai-tris/lin-white-8x8", n_samples=100).train
    return iter([split[: len(split)]])


def _remarks(entry: str, name: str, maps: torch.Tensor, again: torch.Tensor, alone: torch.Tensor) -> Iterator[str]:
    if not torch.equal(maps, again):
        raise ResultError(
            f"{entry} gives other maps the second time (on a small {name}), so nobody could check its scores. Draw "
            "from a generator that is seeded in it, or give it a field `seed`."
        )
    if not bool(maps.any()):
        yield f"all its maps of a small {name} are zero"
    if not torch.allclose(maps[:1], alone, rtol=1e-6, atol=1e-9 * float(maps.abs().max())):
        yield "its map of an image depends on the images beside it; scores may change with the size of the batches"


@dataclass(frozen=True)
class SubmissionInfo:
    """What an author says of a method; empty is taken from its code.

    Attributes:
        name: Of the folder and the scores.
        label: For people.
        authors: Of the method.
        citation: The publication, in words or as BibTeX.
        license: Of code and scores, as the Hub names it.
        homepage: An address on the web.
        repository: Where the code is developed.
        commit: Which state of it this is.
    """

    name: str = ""
    label: str = ""
    authors: tuple[str, ...] = ()
    citation: str = ""
    license: str = ""
    homepage: str = ""
    repository: str = ""
    commit: str = ""


def submit(
    method: str,
    suite: str | Path,
    repository: str | Path,
    *,
    words: SubmissionInfo | None = None,
    parameters: Mapping[str, Any] | None = None,
    work: str | Path | None = None,
    quick: bool = False,
    progress: RunProgress | None = None,
    tried: Any = lambda trial: None,
    **run_settings: Any,
) -> Path:
    """Try a method, run a suite with it, and write the result.

    Args:
        method: A listed explainer, ``package.module:name``, ``file.py`` or ``file.py:name``; one to EXACT's template
            as it is.
        suite: Name or file of a suite.
        repository: The folder of results; below it the result lies at ``METHOD/SUITE@VERSION``.
        words: What is to be said of it.
        parameters: The method's own.
        work: Where the run lies, which goes on there if it is stopped; default ``runs/submit-NAME``.
        quick: The suite's small form.
        progress: Called as jobs end.
        tried: Called with the :class:`Trial` before the suite is run.
        **run_settings: As :func:`xaibench.runner.run` takes them: ``workers``, ``device``, ``store``, ``root``, ...

    Returns:
        The folder of the result.

    Raises:
        ResultError: If the method cannot be called, fails, or is not the same twice; or a job of the suite failed, or
            its images are those of a folder of one's own.
        SuiteError: If there is no such suite.
    """
    said = words or SubmissionInfo()
    loaded, text = load_suite(suite, quick=quick)
    check_public_datasets(text, loaded.name)  # before it is run
    place = Path(work) if work else Path("runs") / f"submit-{slugify(said.name or Path(method).name)}"
    place.mkdir(parents=True, exist_ok=True)
    source = stage_method(method, place / "code")
    name = slugify(said.name or source.name)
    with hide_secrets():
        tried(try_method(source, parameters))
        file = (source.folder or place) / _SUITE
        entry = {"use": source.entry} | dict(parameters or {})
        file.write_text(with_explainers(text, {name: entry}), encoding="utf-8")
        with on_import_path(source.folder):  # and no other module of that name, wherever this is run
            done = run(file, place / "run", progress=progress, **run_settings)
    if done.failures:
        first = next(iter(done.failures.items()))
        raise ResultError(
            f"{len(done.failures)} jobs of the run in {done.folder} failed, such as {first[0]}: {first[1]}"
        )
    own = source.folder is not None
    about = {
        **{"name": name, "label": said.label or name, "entry": source.entry, "summary": source.summary},
        **({"citation": said.citation, "license": said.license} if own or said.citation or said.license else {}),
        **{"authors": said.authors, "homepage": said.homepage},
    }
    if not own:  # what the library says of its own stands, where nobody says otherwise
        about = {key: value for key, value in about.items() if value and (key != "label" or said.label)}
    needed = imported_packages(source.folder).pinned if source.folder else ()
    code = CodeInfo(repository=said.repository, commit=said.commit, requires=needed)
    with on_import_path(source.folder):
        (folder,) = split_run(
            done.folder, repository, methods=[name], about={name: about}, source=source.folder, code=code
        )
    return folder


@contextlib.contextmanager
def hide_secrets() -> Iterator[None]:
    """The environment without tokens and passwords, so that no code of others finds one to print or to keep.

    Yields:
        Nothing.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if _SECRET.search(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)
