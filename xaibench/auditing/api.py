"""The audit of a network: :func:`audit`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from xaibench._version import __version__
from xaibench.auditing.findings import check_accuracy, find_suspicious_images
from xaibench.auditing.images import logits_of, make_subject, read_samples
from xaibench.auditing.page import Audit, make_record
from xaibench.auditing.plan import MINUTES, AuditPlan, Candidates, Task, choose_explainers, make_plan
from xaibench.auditing.questions import ask_interventions, ask_known_causes, ask_masks, score
from xaibench.auditing.sanity import agreement, check_sanity, sanity_tasks
from xaibench.auditing.verdicts import REQUIRED, judge
from xaibench.core.checks import check_amount, check_choice, check_count
from xaibench.core.process_settings import equal_warnings_once
from xaibench.core.progress import ProgressBar, announce, format_duration
from xaibench.core.truth_kinds import TRUTHS, Truth
from xaibench.data.open_images import open_images
from xaibench.models.networks.pretrained_weights import weights_checksum
from xaibench.network.contract import unchecked_networks
from xaibench.network.outputs import check_module
from xaibench.runner.store import Store


def audit(
    model: nn.Module,
    images: Any,
    labels: Tensor | ArrayLike | Literal[False] | None = None,
    *,
    masks: Tensor | ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    groups: ArrayLike | None = None,
    explainers: Any = None,
    output: Any = None,
    samples: int | None = None,
    required: Sequence[Truth] = REQUIRED,
    budget: int | None = None,
    minutes: float = MINUTES,
    train: bool = False,
    name: str | None = None,
    description: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    check_network: bool = True,
    folder: str | os.PathLike[str] | None = None,
    show_plan: Callable[[AuditPlan], object] | None = None,
) -> Audit:
    """Find out which explanations of a network can be trusted on given images.

    Each explainer is compared with controls that do not use the network, on questions of three kinds of truth: does the
    output change when the marked pixels change (intervention), does the map mark what decides the answer, on images for
    which interventions show what that is (use), and does it mark what people marked (human). Sanity checks find maps
    that do not depend on the network, the class or the image.

    Args:
        model: Returns logits for images ``[N, C, H, W]``, as :func:`xaibench.explain` takes it.
        images: ``[N, C, H, W]`` floating-point, as the model takes them; at least 8, better 30 or more. Or a split
            from :func:`xaibench.data.open_images`, with its labels, masks and ids; or what that function opens, such as
            a folder, if all images have the size that the model takes.
        labels: True classes ``[N]``, or ``[N, K]`` of 0 and 1 for several labels per image. Used to test whether the
            network is better than chance; maps explain what the network answers. None: those of a split, whose
            names must be those of ``classes``. False: none, although the split has some.
        masks: Annotations ``[N, H, W]``, for some images or all; false everywhere for images without one.
        classes: Names of the classes, in the order of the network's outputs.
        ids: Name of each image.
        groups: ``[N]`` group of each image, such as a patient; images of one group are not independent.
        explainers: Names, explainers or functions ``(model, images, targets) -> maps``, as a list or
            ``{label: explainer}``; ``"all"``; None: one or two of each family.
        output: The explained output (:func:`xaibench.explain`). ``"sigmoid"`` for networks with independent labels. A
            function of the outputs: then there are no classes, and questions that need them are skipped.
        samples: Number of images, drawn at random from a split; None = all.
        required: Kinds of truth in which a supported explainer must beat every control.
        budget: Maximum number of passes per image for each explainer, forward and backward passes counted alike. None:
            50, and their usual number for explainers that draw random numbers, or what ``minutes`` allow.
        minutes: Time that the audit may take on two cores. It is converted to operations of the network, so that the
            audit is the same on every machine.
        train: Also fine-tune a copy of the network to react to a pattern, which is then what decides its answer.
        name: Name of the network, for the evidence sheet.
        description: Further facts for the evidence sheet, such as where the images come from.
        seed: Seed of all random choices.
        device: ``"auto"`` is the GPU if there is one.
        progress: Show a progress bar.
        check_network: Raise an error if the model is not a deterministic function of one image, as for
            :func:`xaibench.explain`. False: continue with a warning, which the evidence sheet contains.
        folder: Where maps and the evidence sheet are written. An audit that was stopped continues there.
        show_plan: Called with the plan before the first map; may raise an exception to stop.

    Returns:
        The audit; ``print`` shows it, ``.write(directory)`` writes the evidence sheet.

    Raises:
        ValueError: If there are fewer than 8 images or 6 groups, shapes do not match, two explainers have the same
            label, ``required`` is not a list of kinds of truth, no explainer supports the network, or a name of the
            split's labels is not the name of a class.
        TypeError: If the model is not a ``torch.nn.Module``.
        NetworkContractError: If the model is random in evaluation mode, or the output for an image depends on its
            batch. A lost gradient concerns only explainers that use gradients, which are then not tested.
    """
    if budget is not None:
        check_count("budget", budget)
    check_amount("minutes", minutes)
    check_count("seed", seed, least=0)
    if not required:
        raise ValueError("required is empty, expected at least one kind of truth, such as ('intervention', 'use').")
    for kind in required:
        check_choice("required", kind, TRUTHS)
    started = time.monotonic()
    labeled, labels = labels is None, None if labels is False else labels

    def begin(stage: str, *, always: bool = False) -> None:
        if progress:
            announce(f"{format_duration(time.monotonic() - started):>11}  {stage}", always=always)

    given: dict[str, Any] = {"labels": labels, "masks": masks, "classes": classes, "ids": ids, "groups": groups}
    with unchecked_networks(not check_network) as broken, equal_warnings_once():
        if not isinstance(images, Tensor | np.ndarray):
            collection = open_images(images)
            check_module(model)

            def count_outputs(image: Tensor) -> int:
                return logits_of(model, image, output, device).shape[1]

            read = read_samples(collection, samples, classes, count_outputs, seed, progress, labeled)
            given = read | {key: value for key, value in given.items() if value is not None}
            images = given.pop("images")
        subject = make_subject(model, images, output=output, device=device, **given)
        every = Candidates(choose_explainers(explainers), seed=seed)
        plan = make_plan(subject, every, budget=budget, minutes=minutes, train=train)
        effort, candidates = plan.effort, plan.candidates
        if show_plan is not None:
            show_plan(plan)
        begin(
            f"about {plan.forecast} for {len(candidates.passes)} explainers and {plan.images} images",
            always=plan.seconds > 10,
        )
        if folder is not None:
            logits = subject.logits.round(decimals=3).tolist()  # the last bits depend on the number of threads
            context = (weights_checksum(subject.model), logits, subject.device, torch.__version__, __version__)
            subject = dataclasses.replace(subject, store=Store(Path(folder) / "stored"), context=repr(context))
        begin("test of the network")
        network = check_accuracy(subject, seed, progress, effort.tested)
        begin("decisive regions and other known causes")
        causes = ask_known_causes(subject, effort, seed, train, progress)
        regions, questions = causes[0], [ask_interventions(subject, effort), *causes, ask_masks(subject)]
        tasks = [Task("images", [(subject.model, subject.images, subject.targets)])]
        tasks += [question.task(output) for question in causes if not question.skipped]
        repeated = [task for task in sanity_tasks(subject, seed, effort.repeats) if task.key not in effort.left_out]
        maps = candidates.explain(subject, [*tasks, *repeated], progress, begin)
        begin("interventions")
        total = sum(len(question.metrics) * question.samples for question in questions) * len(maps)
        with ProgressBar("interventions", total, "score", shown=progress) as bar:
            questions = [score(question, subject, candidates, maps, bar.advance) for question in questions]
        begin("sanity checks")
        checks = check_sanity(subject, candidates, maps, repeated, effort.regions)
    own, tested = {label: found["images"] for label, found in maps.items()}, list(candidates.explainers)
    verdicts = judge(candidates, questions, checks, network, len(subject.images), required)
    similar, agreements = agreement(own, tested)
    trusted = [v.explainer for v in verdicts if v.outcome == "supported"]
    trusted = trusted or [v.explainer for v in verdicts if v.outcome == "undecided"]
    about: dict[str, Any] = {"name": name or type(model).__name__, "description": dict(description or {})}
    result = Audit(
        verdicts=verdicts,
        questions=questions,
        checks=checks,
        network=network,
        findings=find_suspicious_images(subject, own, trusted, agreements, regions),
        inapplicable={label: why.removeprefix(f"{label}: ") for label, why in candidates.inapplicable.items()},
        record=make_record(subject, plan, required, train, time.monotonic() - started, broken, **about),
        subject=subject,
        maps=own,
        agreement=similar,
        regions=regions,
    )
    if folder is not None:
        result.write(folder)
    if subject.store is not None:  # only the maps of the images remain
        for stage in ("audit", "explain"):
            for key in subject.store.keys(stage):
                if not key.startswith("images-"):
                    subject.store.remove(stage, key)
    return result
