"""The audit of a network: :func:`audit`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from xaibench.auditing.candidates import BUDGET, Candidates, choose_explainers
from xaibench.auditing.findings import find_suspicious_images
from xaibench.auditing.images import Subject, logits_of, make_subject, read_samples
from xaibench.auditing.network_test import check_network as check_accuracy
from xaibench.auditing.page import Audit, make_record
from xaibench.auditing.questions import (
    CAUSES,
    INTERVENTIONS,
    KnownCauses,
    Question,
    ask_interventions,
    ask_known_causes,
    ask_masks,
    blind_copies,
    find_decisive_regions,
    insert_images,
    make_mosaics,
    train_planted_trigger,
)
from xaibench.auditing.sanity import IMAGES as SANITY_IMAGES
from xaibench.auditing.sanity import agreement, check_sanity
from xaibench.auditing.verdicts import REQUIRED, judge
from xaibench.compute.network_contract import unchecked_networks
from xaibench.compute.network_outputs import check_module
from xaibench.core.checks import check_choice, check_count
from xaibench.core.messages import equal_warnings_once
from xaibench.core.progress import ProgressBar
from xaibench.core.truth_kinds import TRUTHS, Truth
from xaibench.data.image_collection import ImageCollection, open_images

#: Samples of each question with a known cause.
_SAMPLES = 12


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
    budget: int = BUDGET,
    train: bool = False,
    name: str | None = None,
    description: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    check_network: bool = True,
) -> Audit:
    """Find out which explanations of a network can be trusted on given images.

    Each explainer gets the same number of passes per image and is compared with controls that do not use the network,
    on questions of three kinds of truth: does the output change when the marked pixels change (intervention), does the
    map mark what decides the answer, on images for which interventions show what that is (use), and does it mark what
    people marked (human). Sanity checks find maps that do not depend on the network, the class or the image.

    Args:
        model: Returns logits for images ``[N, C, H, W]``, as :func:`xaibench.explain` takes it.
        images: ``[N, C, H, W]`` floating-point, as the model takes them; at least 8, better 30 or more. Or a collection
            from :func:`xaibench.data.open_images`, with its labels, masks and ids; or what that function opens, such as
            a folder, if all images have the size that the model takes.
        labels: True classes ``[N]``, or ``[N, K]`` of 0 and 1 for several labels per image. Used to test whether the
            network is better than chance; maps explain what the network answers. None: those of a collection, whose
            names must be those of ``classes``. False: none, although the collection has some.
        masks: Annotations ``[N, H, W]``, for some images or all; false everywhere for images without one.
        classes: Names of the classes, in the order of the network's outputs.
        ids: Name of each image.
        groups: ``[N]`` group of each image, such as a patient; images of one group are not independent.
        explainers: Names, explainers or functions ``(model, images, targets) -> maps``, as a list or
            ``{label: explainer}``; ``"all"``; None: one or two of each family.
        output: The explained output (:func:`xaibench.explain`). ``"sigmoid"`` for networks with independent labels. A
            function of the outputs: then there are no classes, and questions that need them are skipped.
        samples: Number of images, drawn at random from a collection; None = all.
        required: Kinds of truth in which a supported explainer must beat every control.
        budget: Maximum number of passes per image for each explainer, forward and backward passes counted alike.
        train: Also fine-tune a copy of the network to react to a pattern, which is then what decides its answer.
        name: Name of the network, for the evidence sheet.
        description: Further facts for the evidence sheet, such as where the images come from.
        seed: Seed of all random choices.
        device: ``"auto"`` is the GPU if there is one.
        progress: Show a progress bar.
        check_network: Raise an error if the model is not a deterministic function of one image, as for
            :func:`xaibench.explain`. False: continue with a warning, which the evidence sheet contains.

    Returns:
        The audit; ``print`` shows it, ``.write(directory)`` writes the evidence sheet.

    Raises:
        ValueError: If there are fewer than 8 images or 6 groups, shapes do not match, two explainers have the same
            label, ``required`` is not a list of kinds of truth, no explainer supports the network, or a name of the
            collection's labels is not the name of a class.
        TypeError: If the model is not a ``torch.nn.Module``.
        NetworkContractError: If the model is random in evaluation mode, or the output for an image depends on its
            batch. A lost gradient concerns only explainers that use gradients, which are then not tested.
    """
    check_count("budget", budget)
    check_count("seed", seed, least=0)
    if not required:
        raise ValueError("required is empty, expected at least one kind of truth, such as ('intervention', 'use').")
    for kind in required:
        check_choice("required", kind, TRUTHS)
    started = time.monotonic()
    labeled, labels = labels is None, None if labels is False else labels
    given: dict[str, Any] = {"labels": labels, "masks": masks, "classes": classes, "ids": ids, "groups": groups}
    with unchecked_networks(not check_network) as broken, equal_warnings_once():
        if not isinstance(images, Tensor | np.ndarray):
            collection = images if isinstance(images, ImageCollection) else open_images(images)
            check_module(model)
            outputs = logits_of(model, collection[0].images, output, device).shape[1]
            read = read_samples(collection, samples, classes, outputs, seed, progress, labeled)
            given = read | {key: value for key, value in given.items() if value is not None}
            images = given.pop("images")
        subject = make_subject(model, images, output=output, device=device, **given)
        candidates = Candidates(choose_explainers(explainers), budget=budget, output=output, seed=seed, device=device)
        _drop_inapplicable(candidates, [(subject.model, subject.images, subject.targets)])
        network = check_accuracy(subject, seed, progress)
        causes = _known_causes(subject, seed, train, progress)
        copies = [(c.models[0][2], c.images, c.targets) for c in causes.values() if c.models]
        _drop_inapplicable(candidates, [copy for copy in copies if copy[0] is not subject.model])
        with ProgressBar("audit", _count_maps(subject, candidates, causes), "map", shown=progress, keep=True) as bar:
            maps = {}
            for label in candidates.labels:
                maps[label] = candidates.maps(label, subject.model, subject.images, subject.targets)
                bar.advance(len(maps[label]))
            questions = [ask_interventions(subject, candidates, maps, bar.advance)]
            questions += [ask_known_causes(key, found, candidates, bar.advance) for key, found in causes.items()]
            if not train:
                questions.append(
                    Question("planted_trigger", "use", *CAUSES["planted_trigger"][:2], skipped="only with train")
                )
            questions.append(ask_masks(subject, candidates, maps))
            checks = check_sanity(subject, candidates, maps, bar.advance)
    tested = list(candidates.explainers)
    verdicts = judge(tested, candidates.controls, questions, checks, network, len(subject.images), required)
    similar, agreements = agreement(maps, tested)
    trusted = [v.explainer for v in verdicts if v.outcome == "supported"]
    trusted = trusted or [v.explainer for v in verdicts if v.outcome == "undecided"]
    findings = find_suspicious_images(subject, maps, trusted, agreements, causes["decisive_regions"])
    about_network: dict[str, Any] = {"name": name or type(model).__name__, "description": dict(description or {})}
    record = make_record(subject, candidates, required, train, time.monotonic() - started, broken, **about_network)
    return Audit(
        verdicts=verdicts,
        questions=questions,
        checks=checks,
        network=network,
        findings=findings,
        inapplicable=candidates.inapplicable,
        record=record,
        subject=subject,
        maps=maps,
        agreement=similar,
        regions=causes["decisive_regions"],
    )


def _drop_inapplicable(candidates: Candidates, networks: Sequence[tuple[nn.Module, Tensor, Tensor]]) -> None:
    """Explain the first image of each network; leave out explainers that cannot, and raise an error if none can."""
    for network, images, targets in networks:
        candidates.drop_inapplicable(network, images[:1], targets[:1])
    if not candidates.explainers:
        reasons = "; ".join(f"{label}: {why}" for label, why in candidates.inapplicable.items())
        raise ValueError(
            f"None of the explainers supports this network with a budget of {candidates.budget}. {reasons}"
        )


def _known_causes(subject: Subject, seed: int, train: bool, progress: bool) -> dict[str, KnownCauses]:
    keys = ("decisive_regions", "insertions", "mosaics", "blinded_copies", "planted_trigger")
    rng = {key: np.random.default_rng([seed, index]) for index, key in enumerate(keys)}
    with ProgressBar("decisive regions", len(subject.images), "image", shown=progress) as bar:
        regions = find_decisive_regions(subject, _SAMPLES, rng["decisive_regions"], bar.advance)
    causes = {
        "decisive_regions": regions,
        "insertions": insert_images(subject, _SAMPLES, rng["insertions"]),
        "mosaics": make_mosaics(subject, _SAMPLES, rng["mosaics"]),
        "blinded_copies": blind_copies(subject, _SAMPLES, rng["blinded_copies"]),
    }
    if train:
        causes["planted_trigger"] = train_planted_trigger(subject, _SAMPLES, rng["planted_trigger"], progress)
    return causes


def _count_maps(subject: Subject, candidates: Candidates, causes: Mapping[str, KnownCauses]) -> int:
    samples = (1 + len(INTERVENTIONS)) * len(subject.images) + sum(map(len, causes.values()))
    again = (4 if subject.logits.shape[1] > 2 else 3) * min(SANITY_IMAGES, len(subject.images))
    return len(candidates.labels) * samples + len(candidates.explainers) * again
