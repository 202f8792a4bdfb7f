"""The network and the images of an audit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_map_shape
from xaibench.core.messages import did_you_mean, folded, listed, warn_caller
from xaibench.core.progress import ProgressBar
from xaibench.data.base import Sample, Split
from xaibench.data.disk.damaged_files import describe_damaged, read_undamaged
from xaibench.data.disk.file_readers import to_nfc
from xaibench.data.photographs.image_folder import imagenet_synsets
from xaibench.evaluation.apply import to_device
from xaibench.models.networks.pretrained_weights import update_digest
from xaibench.network.answers import NetworkAnswers, OutputOrFunction, assigned_classes, skip_last_layer
from xaibench.network.contract import check_network
from xaibench.network.explained_output import ExplainedOutput
from xaibench.network.lending import copy_network, evaluation_mode
from xaibench.network.outputs import check_classes, check_module, model_device_and_dtype, probe
from xaibench.runner.store import Store
from xaibench.tensors.batching import BatchSize, default_batch_size
from xaibench.tensors.device import resolve_device
from xaibench.tensors.inputs import as_images

#: How logits become probabilities: over all classes, or for each label on its own; or a function of the outputs, whose
#: value is explained, and no classes.
Head: TypeAlias = Literal["softmax", "sigmoid", "function"]
#: Fewest images of an audit, and groups of them.
FEWEST_IMAGES, FEWEST_GROUPS = 8, 6


@dataclass(frozen=True)
class Subject:
    """The network and the images of an audit, with the network's answers.

    Attributes:
        model: The network, on its own device.
        images: ``[N, C, H, W]`` on the CPU.
        ids: Name of each image.
        output: The explained output as the user gave it (:func:`xaibench.explain`).
        classes: Names of the classes.
        labels: ``[N]`` true classes, or ``[N, K]`` of 0 and 1 for several labels per image; None if unknown.
        masks: ``[N, H, W]`` bool, annotations; all false where an image has none.
        groups: ``[N]`` group of each image, such as a patient.
        device: Where the network is called.
        logits: ``[N, K]`` float64, the network's outputs for the images.
        label_names: Class number by name of the label, such as a class folder; empty if labels were given as numbers.
        left_out: Reason by name of the images that cannot be read.
        store: Results of an audit that was stopped; None: nothing is stored.
        context: What all results depend on, such as versions.
    """

    model: nn.Module
    images: Tensor
    ids: Sequence[str]
    output: OutputOrFunction | None
    classes: Sequence[str]
    labels: Tensor | None
    masks: Tensor
    groups: NDArray[np.int64]
    device: str
    logits: Tensor
    label_names: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    store: Store | None = None
    context: str = ""

    @property
    def head(self) -> Head:
        """How logits become probabilities."""
        return "function" if callable(self.output) else "sigmoid" if self.output == "sigmoid" else "softmax"

    @property
    def targets(self) -> Tensor:
        """The explained class of each image ``[N]``: the one that the network is most sure of."""
        return self.logits.argmax(1)

    @property
    def batch(self) -> Sample:
        """The images with masks and targets."""
        return self.images, self.masks, self.targets

    @property
    def canvas(self) -> Tensor:
        """The mean color of the images, ``[C, 1, 1]``, with as many axes as an image."""
        axes = tuple(range(2, self.images.ndim))
        return self.images.double().mean((0, *axes), keepdim=True).to(self.images.dtype)[0]

    def ask(self, images: Tensor, model: nn.Module | None = None, name: str = "") -> Tensor:
        """Return the logits ``[n, K]`` of the network, or of another one, for images ``[n, C, H, W]``; float64, CPU.

        Args:
            images: The images.
            model: A copy of the network; None: the network.
            name: Identifies the copy; empty: its weights do.
        """
        network = self.model if model is None else model
        compute = partial(logits_of, network, images, self.output, self.device)
        return self.stored("audit", "logits", [images, name or model], compute)

    def stored(self, stage: str, name: str, inputs: Sequence[Any], compute: Callable[[], Tensor]) -> Tensor:
        """Return a stored tensor, or compute and store it.

        Args:
            stage: Folder of the store: ``"explain"`` for maps, otherwise ``"audit"``.
            name: First part of its key.
            inputs: What it depends on: tensors, copies of the network, and values that their text identifies.
            compute: Returns the tensor.
        """
        if self.store is None:
            return compute()
        digest = hashlib.sha256(self.context.encode())
        for one in inputs:
            digest.update(_encode(one))
        key = f"{name}-{digest.hexdigest()[:16]}"
        return self.store.get_tensors(stage, key, lambda: {name: compute()})[name]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Convert logits ``[n, K]`` to probabilities ``[n, K]``."""
        return logits.softmax(1) if self.head == "softmax" else logits.sigmoid()

    def answers(self, logits: Tensor) -> Tensor:
        """Return which classes the network assigns, ``[n, K]`` bool (:func:`.answers.assigned_classes`)."""
        return assigned_classes(logits, self.output)


#: Checksums of networks that were inputs of stored results.
_CHECKSUMS: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def _encode(one: Any) -> bytes:
    if isinstance(one, Tensor):
        return f"{one.dtype} {tuple(one.shape)} ".encode() + one.contiguous().numpy().tobytes()
    if not isinstance(one, nn.Module):
        return repr(one).encode()
    if one not in _CHECKSUMS:
        digest = hashlib.sha256()
        # Also buffers that are not in the state dictionary: a blinded copy has its visible pixels there.
        for name, value in chain(one.named_parameters(), one.named_buffers()):
            update_digest(digest, name, value)
        _CHECKSUMS[one] = digest.hexdigest()
    return _CHECKSUMS[one].encode()


def logits_of(model: nn.Module, images: Tensor, output: OutputOrFunction | None, device: str) -> Tensor:
    """Compute logits in batches, in evaluation mode, on a device.

    Args:
        model: The network; copied if it is elsewhere.
        images: ``[n, C, H, W]`` on the CPU.
        output: The explained output. ``"sigmoid"``: a network that ends in a sigmoid has its logits computed from the
            probabilities, and one with a single output has two classes. A function: its values are returned.
        device: ``"auto"`` is the GPU if there is one.

    Returns:
        ``[n, K]`` float64 on the CPU; ``[n, 1]`` for a function.

    Raises:
        ValueError: If the network has a single output, and ``output`` is neither ``"sigmoid"`` nor a function.
    """
    place = resolve_device(device)
    lent = to_device(model, place)
    kind = next((p.dtype for p in lent.parameters() if p.is_floating_point()), images.dtype)
    answers = NetworkAnswers(lent, output)
    answers.returns_probabilities(images[:1].to(place, kind))

    def compute(part: slice) -> Tensor:
        rows = images[part].to(place, kind)
        return answers.select(lent(rows), len(rows), exact=True)

    size = BatchSize(max(8, default_batch_size(images)))
    with evaluation_mode(lent), torch.no_grad():
        logits = size.each(len(images), compute)
    if logits.shape[1] == 1 and not callable(output):
        raise ValueError(
            'output: the network has a single output, which alone distinguishes no classes. Give output="sigmoid" '
            "(--output sigmoid) if it is the logit or the probability of the second of two classes, and their names as "
            "classes= (--classes NEGATIVE,POSITIVE)."
        )
    return logits


def divided_axes(images: Tensor) -> int:
    """Return the number of spatial axes with more than one pixel."""
    return sum(side > 1 for side in images.shape[2:])


def make_subject(
    model: nn.Module,
    images: Any,
    *,
    labels: Any = None,
    masks: Any = None,
    classes: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    groups: Any = None,
    label_names: Mapping[str, int] | None = None,
    left_out: Mapping[str, str] | None = None,
    output: OutputOrFunction | None = None,
    device: str = "auto",
) -> Subject:
    """Check the network and the images of an audit, and compute the network's answers.

    Args:
        model: The network.
        images: ``[N, C, H, W]``, floating-point.
        labels: ``[N]``, or ``[N, K]`` of 0 and 1.
        masks: ``[N, H, W]``.
        classes: Names of the classes; None numbers them.
        ids: Names of the images; None numbers them.
        groups: ``[N]``; None: every image is a group.
        label_names: Class number by name of the label.
        left_out: Reason by name of the images that cannot be read.
        output: The explained output.
        device: Where the network is called.

    Returns:
        Network and images.

    Raises:
        TypeError: If the model is not a module.
        ValueError: If shapes do not match, or there are fewer images than :data:`FEWEST_IMAGES` or groups than
            :data:`FEWEST_GROUPS`.
    """
    check_module(model)
    x = as_images(images).cpu()
    if len(x) < FEWEST_IMAGES:
        raise ValueError(f"images: got {len(x)}, expected at least {FEWEST_IMAGES}: fewer cannot decide anything.")
    select = ExplainedOutput(model, output or "logit").select
    first = probe(model, x[:1], select=select)
    check_network(model, x, first, select=select)
    model = _without_softmax(model, x, first, output)
    logits = logits_of(model, x, output, device)
    outputs = logits.shape[1]
    names = [f"class {number}" for number in range(outputs)] if classes is None else list(classes)
    if len(names) != outputs and not callable(output):
        raise ValueError(f"classes: got {len(names)} names, expected one for each of the {outputs} outputs.")
    y = None if labels is None else torch.as_tensor(labels).cpu()
    if y is not None and y.shape not in ((len(x),), (len(x), outputs)):
        raise ValueError(f"labels: got {list(y.shape)}, expected [{len(x)}] class numbers, or [{len(x)}, {outputs}].")
    if y is not None and y.ndim == 1:
        check_classes(y, outputs, "labels")
    m = torch.zeros_like(x[:, 0], dtype=torch.bool) if masks is None else torch.as_tensor(masks).cpu() != 0
    check_map_shape(m, x[:, 0].shape, "masks")
    named = [str(one) for one in (range(len(x)) if ids is None else ids)]
    groups = np.arange(len(x)) if groups is None else np.asarray(groups)
    for what, given in (("ids", named), ("groups", groups)):
        if len(given) != len(x):
            raise ValueError(f"{what}: got {len(given)}, expected one for each of {len(x)} images.")
    different, numbers = np.unique(groups, return_inverse=True)
    if len(different) < FEWEST_GROUPS:
        raise ValueError(
            f"groups: got {len(different)} different ones, expected at least {FEWEST_GROUPS}: images of a group, such "
            "as a patient, count as one. Add images of other groups."
        )
    facts: tuple[Any, ...] = (label_names or {}, left_out or {})
    return Subject(model, x, named, output, names, y, m, numbers.astype(np.int64), device, logits, *facts)


def _without_softmax(model: nn.Module, images: Tensor, outputs: Tensor, output: OutputOrFunction | None) -> nn.Module:
    """Return a copy without its final softmax layer, since an audit takes outputs for logits; others as they are."""
    is_distribution = outputs.shape[1] > 1 and bool(outputs.min() >= 0) and abs(float(outputs.sum()) - 1) < 1e-2
    if callable(output) or output == "sigmoid" or not is_distribution:
        return model
    copied = copy_network(model)
    with evaluation_mode(copied):
        layer = skip_last_layer(copied, images[:1].to(*model_device_and_dtype(model, images)), "softmax")
    if layer:
        warn_caller(f"The network ends in a softmax ({layer!r}); its inputs, the logits, are audited.")
    return copied if layer else model


def read_samples(
    collection: Split,
    samples: int | None,
    classes: Sequence[str] | None,
    count_outputs: Callable[[Tensor], int],
    seed: int,
    progress: bool = False,
    labeled: bool = True,
) -> dict[str, Any]:
    """Read images with their labels, masks and groups. Up to 5 % that cannot be read are left out with a warning.

    Args:
        collection: The images.
        samples: Number of images, drawn at random; None = all.
        classes: Names of the network's classes, if known.
        count_outputs: Returns the number of the network's classes for an image ``[1, C, H, W]``.
        seed: Seed of the choice.
        progress: Show a progress bar.
        labeled: Read the labels, too.

    Returns:
        Arguments of :func:`xaibench.auditing.images.make_subject`: images, labels, masks, ids, groups, classes,
        label_names and left_out.

    Raises:
        DataFileError: If more than 5 % of the images cannot be read.
        ValueError: If a name of the labels is not the name of a class (:func:`number_classes`).
    """
    numbers = np.arange(len(collection))
    if samples is not None and samples < len(numbers):
        numbers = np.sort(np.random.default_rng(seed).choice(numbers, samples, replace=False))
    (images, masks, labels), numbers, left_out = _read(collection, numbers, progress)
    outputs = count_outputs(images[:1])
    named = collection.classes or ()
    label_names: dict[str, int] = {}
    labeled &= collection.classes is not None
    if labeled and not collection.numbered:
        present = sorted(set(collection.targets.tolist()))
        label_names = number_classes([named[label] for label in present], classes, outputs)
    if label_names:
        labels = torch.tensor([label_names[named[label]] for label in labels.tolist()])
    ids, groups = collection.ids, collection.groups
    if not classes:  # those of numbered classes, or ImageNet's synset ids
        is_numbered = collection.numbered and len(named) == outputs
        classes = named if is_numbered else imagenet_synsets() if label_names else None
    return {
        "images": images,
        "labels": labels if labeled else None,
        "masks": masks,
        "ids": [ids[number] for number in numbers.tolist()],
        "groups": None if groups is None else groups[numbers],
        "classes": classes,
        "label_names": label_names,
        "left_out": left_out,
    }


def _read(
    collection: Split, numbers: NDArray[np.int64], progress: bool
) -> tuple[Sample, NDArray[np.int64], dict[str, str]]:
    """Read images; return them, their numbers, and the reason for each that cannot be read, by its name."""
    damaged: dict[int, str] = {}
    with ProgressBar("reading", len(numbers), "image", shown=progress) as bar:

        def read(number: int) -> Sample:
            bar.advance(1)
            return collection[[number]]

        parts = list(read_undamaged(read, numbers.tolist(), damaged))
    names = collection.ids
    left_out = {names[number]: reason for number, reason in damaged.items()}
    _, named = describe_damaged(left_out, len(numbers))
    if named:
        warn_caller(named)
    images, masks, targets = map(torch.cat, zip(*parts, strict=True))
    return (images, masks, targets), np.setdiff1d(numbers, list(damaged)), left_out


def number_classes(names: Sequence[str], classes: Sequence[str] | None, outputs: int) -> dict[str, int]:
    """Find the class of the network that each name of a label is.

    Equal names match, then names that differ only in case, spaces, hyphens and underscores (of a class with several
    names, separated by commas, any of them), then ImageNet's synset ids for networks with 1,000 outputs.

    Args:
        names: Names of the labels, such as class folders.
        classes: Names of the network's classes in the order of its outputs; None if not known.
        outputs: Number of the network's classes.

    Returns:
        The class number of each name.

    Raises:
        ValueError: If a name is not that of exactly one class. Nothing is guessed from the order of the names.

    Example:
        >>> number_classes(["Great_Dane", "tabby"], ["tabby, tabby cat", "great dane"], 2)
        {'Great_Dane': 1, 'tabby': 0}
    """
    known = list(classes or ())
    exact = [{name} for name in known]
    similar = [{folded(to_nfc(one)) for one in (name, *name.split(","))} for name in known]
    synsets = [{synset} for synset in imagenet_synsets()] if outputs == 1000 else []
    hits = {}
    for name in names:
        tables = ((name, exact), (folded(to_nfc(name)), similar), (name, synsets))
        found = ([number for number, one in enumerate(table) if key in one] for key, table in tables)
        hits[name] = next(filter(None, found), [])
    unclear = [
        f"{name} is the name of the outputs {listed(numbers)}."
        if numbers
        else f"{name} is not the name of a class{did_you_mean(name, known)}"
        for name, numbers in hits.items()
        if len(numbers) != 1
    ]
    if unclear:
        described = f"classes {listed(known, most=20)}. {' '.join(unclear[:5])}" if known else "no names of classes."
        raise ValueError(
            f"labels: the images have the labels {listed(names, most=20)} (class folders or names in the data), and "
            f"the {outputs} outputs of the network have {described} Give the names of all classes in the order of the "
            "outputs as classes= (--classes), or leave the labels out with labels=False (--no-labels)."
        )
    return {name: numbers[0] for name, numbers in hits.items()}
