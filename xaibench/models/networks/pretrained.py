"""Common parts of pretrained classifiers: pixels in [0, 1] as input, normalization as a layer, and a new last layer.

A classifier is ``Classifier(network, mean, std)``: images ``[N, 3, H, W]`` in [0, 1] are normalized inside the module.
Baselines, masked images and perturbations are therefore in pixel space (black is 0, regardless of the normalization
that a network was trained with), and maps of different networks refer to the same pixels. A gradient by the pixels is
the gradient by the normalized image, divided by the standard deviation of each channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.core.messages import listed
from xaibench.models.networks.class_folding import Groups, Weighting, fold_classes
from xaibench.network.outputs import ImageShapeError, check_plane

#: The last layer: ``"new"``, with random weights, or ``"pretrained"``, that of the pretrained weights.
HeadChoice: TypeAlias = Literal["new", "pretrained"]


class Normalize(nn.Module):
    """Normalize each channel: ``(x - mean) / std``.

    Args:
        mean: Mean of each channel, for pixels in [0, 1].
        std: Standard deviation of each channel; positive.

    Example:
        >>> Normalize([0.5], [0.25])(torch.ones(1, 1, 1, 1)).item()
        2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise ValueError(f"Expected as many positive deviations as means, got mean={mean} and std={std}.")
        # Not part of the state dict: a file of weights does not change them.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Subtract the mean of each channel and divide by its standard deviation.

        Args:
            images: ``[N, C, H, W]`` in [0, 1].

        Returns:
            ``[N, C, H, W]``.
        """
        return (images - self.mean) / self.std


def find_normalization(network: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and standard deviation of the first :class:`Normalize` in a network; None if it changes nothing."""
    layer = next((layer for layer in network.modules() if isinstance(layer, Normalize)), None)
    if layer is None or (bool((layer.mean == 0).all()) and bool((layer.std == 1).all())):
        return None
    return tuple(layer.mean.flatten().tolist()), tuple(layer.std.flatten().tolist())


class Classifier(nn.Module):
    """A network together with the normalization that it was trained with.

    Args:
        network: From normalized images ``[N, C, H, W]`` to logits ``[N, K]``.
        mean: As in :class:`Normalize`.
        std: As in :class:`Normalize`.

    Attributes:
        explain_dtype: Dtype in which explainers run it.

    Example:
        >>> model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), [0.5] * 3, [0.2] * 3)
        >>> tuple(model(torch.rand(4, 3, 2, 2)).shape)
        (4, 5)
    """

    explain_dtype = torch.float32

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Classify images.

        Args:
            images: ``[N, C, H, W]`` in [0, 1].

        Returns:
            Logits ``[N, K]``.
        """
        # Convolutions are faster in this memory format, and keep it for their outputs.
        logits: Tensor = self.network(self.normalize(images).contiguous(memory_format=torch.channels_last))
        return logits


def last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    """Return the last linear layer in the order of definition, and its name: ``fc``, ``classifier.6``, ``heads.head``.

    Raises:
        ValueError: If there is none.

    Example:
        >>> last_linear(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))[0]
        '2'
    """
    linear_layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if not linear_layers:
        raise ValueError(f"{type(network).__name__} has no nn.Linear to be its last layer.")
    return linear_layers[-1]


def replace_head(network: nn.Module, num_classes: int) -> None:
    """Replace the last layer by a new one, with PyTorch's default initialization from the global generator."""
    name, old = last_linear(network)
    owner, _, attribute = name.rpartition(".")
    new = nn.Linear(old.in_features, num_classes, bias=old.bias is not None)
    setattr(network.get_submodule(owner), attribute, new)


def load_state(network: nn.Module, state: Mapping[str, Tensor], source: str, *, head: HeadChoice) -> None:
    """Load weights into a network; its last layer gets the number of classes of the weights.

    Args:
        network: The architecture of which the weights were saved, apart from the number of classes.
        state: State dict of the network, or of a :class:`Classifier` around it.
        source: Where the weights come from, for error messages.
        head: ``"new"`` accepts weights without a last layer.

    Raises:
        ValueError: If names or shapes do not fit, or a weight is not finite.
    """
    for prefix in ("module.", "network."):
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    name = last_linear(network)[0]
    built = network.state_dict()
    theirs = state.get(f"{name}.weight")
    if theirs is not None and theirs.ndim == 2 and len(theirs) != len(built[f"{name}.weight"]):
        replace_head(network, len(theirs))
        built = network.state_dict()
    lost = {key for key in (f"{name}.weight", f"{name}.bias") if head == "new" and key in built and key not in state}
    # The counters of batch norm are not used, and old files do not have them.
    lost |= {key for key in built if key.endswith("num_batches_tracked") and key not in state}
    state = {**state, **{key: built[key] for key in lost}}
    _check_fits(built, state, source)
    network.load_state_dict(state)


def _check_fits(built: Mapping[str, Tensor], state: Mapping[str, Tensor], source: str) -> None:
    shapes = {key for key in built.keys() & state.keys() if built[key].shape != state[key].shape}
    problems = [
        f"{what}: {listed(sorted(keys), most=4)}"
        for what, keys in (
            ("missing", built.keys() - state.keys()),
            ("unknown", state.keys() - built.keys()),
            ("of another shape", shapes),
        )
        if keys
    ]
    if problems:
        raise ValueError(
            f"{source} does not fit the network; {'; '.join(problems)}. They may belong to another network."
        )
    broken = {key for key, value in state.items() if value.is_floating_point() and not value.isfinite().all()}
    if broken:
        raise ValueError(
            f"{source} has NaN or infinite weights in {listed(sorted(broken), most=4)}; take other weights."
        )


def check_request(
    name: str, in_shape: tuple[int, ...], num_classes: int, head: str, *, smallest: int = 1, multiple: int = 1
) -> None:
    """Check the arguments of a pretrained classifier before anything is downloaded.

    Raises:
        ValueError: If the images are not RGB or too small, there are fewer than two classes, or ``head`` is unknown.
    """
    check_plane(name, in_shape)
    channels, height, width = in_shape
    if channels != 3:
        raise ValueError(
            f"{name}: in_shape is {in_shape}, expected (3, H, W): RGB in [0, 1]. Repeat a gray channel: "
            "images.expand(-1, 3, -1, -1)."
        )
    if min(height, width) < smallest or height % multiple or width % multiple:
        steps = f" and multiples of {multiple}" if multiple > 1 else ""
        raise ImageShapeError(f"{name}: in_shape is {in_shape}, expected sides of at least {smallest} pixels{steps}.")
    if num_classes < 2:
        raise ValueError(f"{name}: num_classes is {num_classes}, but a classifier needs at least 2.")
    if head not in get_args(HeadChoice):
        raise ValueError(f"{name}: head={head!r}, expected 'new' or 'pretrained'.")


def finish_classifier(
    name: str,
    network: nn.Module,
    state: Mapping[str, Tensor] | None,
    source: object,
    statistics: tuple[Sequence[float], Sequence[float]],
    num_classes: int,
    head: HeadChoice,
    fold: str | Groups | None,
    weighting: Weighting,
) -> nn.Module:
    """Return the classifier around a network: load weights, set the last layer, switch to evaluation mode."""
    keep = fold is not None or head == "pretrained"
    if state is not None:
        load_state(network, state, f"{name}: weights={str(source)!r}", head="pretrained" if keep else "new")
    if not keep:
        replace_head(network, num_classes)
    elif fold is None and last_linear(network)[1].out_features != num_classes:
        raise ValueError(
            f"{name}: head='pretrained' has {last_linear(network)[1].out_features} outputs, but num_classes is "
            f"{num_classes}. Take head='new' and train it (xaibench.models.fit_head), or fold the classes "
            "(fold={'cat': [281, ...], 'dog': [151, ...]})."
        )
    return fold_classes(Classifier(network, *statistics), fold, weighting, num_classes, name).eval()
