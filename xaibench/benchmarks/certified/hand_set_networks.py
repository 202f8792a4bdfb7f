"""Networks with hand-set weights, for which it is known which pixels they use and how much.

They compute the functions of :mod:`xaibench.benchmarks.certified.functions`, as a linear layer, a multi-layer
perceptron or a convolutional network. They are not trained. Unused pixels are cut off by weights that are exactly zero.
Only in ``cancellation`` does an unused pixel go through two neurons and cancel afterwards: exactly for the pixels of
the certified sets, up to rounding for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.benchmarks.certified.functions import (
    FUNCTIONS,
    OFFSET,
    PIXELS,
    SIDE,
    CellFunction,
    cell_weights,
    shapley_values,
    used_pixels,
)
from xaibench.core.messages import unknown
from xaibench.models.networks.base import Network
from xaibench.registry.info import ModelInfo
from xaibench.registry.table import UnknownNameError

FORMS = ("linear", "mlp", "cnn")

_CITATION = "Shapley: A Value for n-person Games. In: Contributions to the Theory of Games II, 1953."


class KnownNetwork(Network):
    """A network whose logits are ±z/2 for a known function z of the image, the evidence for class 1.

    Attributes:
        function: What each cell of the image adds to z.
        used: ``[H, W]`` bool: the pixels that change the output for at least one image.
    """

    used: Tensor

    def __init__(self, function: CellFunction, form: str, height: int, width: int) -> None:
        super().__init__(*_LAYERS[form](function, cell_weights(height, width)))
        self.function = function
        self.register_buffer("used", torch.from_numpy(used_pixels(function, height, width)), persistent=False)

    def shapley_values(self, images: Tensor, targets: Tensor) -> Tensor:
        """Return the exact Shapley values of the target's logit; absent pixels are 0.

        Args:
            images: ``[N, 1, H, W]``, any values.
            targets: ``[N]``, 0 or 1.

        Returns:
            ``[N, H, W]`` float64, on the device of the images. They sum to the logit minus its value for an image of
            zeros.
        """
        pixels = images[:, 0].detach().double().cpu().numpy()
        values = torch.from_numpy(shapley_values(self.function, pixels)).to(images.device)
        return values * (targets.to(images.device) - 0.5)[:, None, None]


@dataclass(frozen=True)
class HandSet:
    """Factory of networks with hand-set weights; by name ``"certified:and-mlp"``.

    Called as ``(in_shape, num_classes) -> nn.Module``.

    Attributes:
        name: A function (``"additive"``, ``"and"``, ``"xor"``, ``"or"``, ``"saturation"``, ``"cancellation"``,
            ``"absence"`` or ``"shattered"``) and a form (``"mlp"``, ``"cnn"`` or, for additive only, ``"linear"``),
            joined by a hyphen.

    Raises:
        UnknownNameError: If the function is unknown, or does not have that form.

    Example:
        >>> network = HandSet("and-mlp")((1, 4, 4), 2)
        >>> image = torch.zeros(1, 1, 4, 4)
        >>> image[..., 0, :2] = 1
        >>> network(image).tolist()  # ±1/2 for the evidence, and ±1/16 for the offset
        [[-0.5625, 0.5625]]
        >>> network.shapley_values(image, torch.tensor([1]))[0, 0].tolist()
        [0.25, 0.25, 0.0, 0.0]
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in HAND_SET:
            raise UnknownNameError(unknown("There is no certified network", self.name, HAND_SET))

    @property
    def info(self) -> ModelInfo:
        """Metadata for tables."""
        function, _, form = self.name.rpartition("-")
        return ModelInfo(f"{FUNCTIONS[function].label}, {form if form == 'linear' else form.upper()}", _CITATION)

    def __call__(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Build the network, in evaluation mode.

        Args:
            in_shape: ``(1, H, W)``, with even sides of at least 4 pixels.
            num_classes: 2.

        Returns:
            From images ``[N, 1, H, W]`` to logits ``[N, 2]``, on the CPU; a :class:`KnownNetwork`.

        Raises:
            ValueError: For another shape or number of classes.
        """
        if len(in_shape) != 3 or in_shape[0] != 1 or num_classes != 2:
            raise ValueError(
                f"certified:{self.name}: in_shape is {tuple(in_shape)} and num_classes {num_classes}, expected "
                "(1, H, W) and 2."
            )
        function, _, form = self.name.rpartition("-")
        return KnownNetwork(FUNCTIONS[function], form, *in_shape[1:]).eval()


#: Names of all networks of this kind.
HAND_SET = tuple(
    f"{name}-{form}"
    for name, function in FUNCTIONS.items()
    for form in FORMS
    if form != "linear" or function.linear is not None
)


def _make_linear(function: CellFunction, scales: NDArray[np.float64]) -> list[nn.Module]:
    rows = [scales[cell] * _neuron_weights(function.linear, cell, scales.shape) for cell in _active_cells(scales)]
    return [_output_layer(np.sum(rows, axis=0), OFFSET)]


def _make_mlp(function: CellFunction, scales: NDArray[np.float64]) -> list[nn.Module]:
    """Return layers with one hidden neuron for each unit of each active cell."""
    hidden, out = [], []
    for cell in _active_cells(scales):
        for unit in function.units:
            hidden.append(_neuron_weights(unit.weights, cell, scales.shape))
            out.append(scales[cell] * unit.out)
    biases = [unit.bias for unit in function.units] * len(_active_cells(scales))
    first = _set_weights(nn.Linear(scales.size * PIXELS, len(out)), np.stack(hidden), biases)
    return [first, nn.ReLU(), _output_layer(np.array(out), OFFSET - _value_at_zero(function) * scales.sum())]


def _make_cnn(function: CellFunction, scales: NDArray[np.float64]) -> list[nn.Module]:
    """Return layers with one filter per unit, applied to one cell at a time, and a linear layer on the active cells."""
    filters = np.array([unit.weights for unit in function.units]).reshape(-1, 1, SIDE, SIDE)
    convolution = nn.Conv2d(1, len(filters), SIDE, stride=SIDE)
    first = _set_weights(convolution, filters, [unit.bias for unit in function.units])
    out = np.concatenate([unit.out * scales.flatten() for unit in function.units])
    return [first, nn.ReLU(), _output_layer(out, OFFSET - _value_at_zero(function) * scales.sum())]


_LAYERS = {"linear": _make_linear, "mlp": _make_mlp, "cnn": _make_cnn}


def _active_cells(scales: NDArray[np.float64]) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for row, column in np.argwhere(scales)]


def _neuron_weights(
    weights: Sequence[float] | None, cell: tuple[int, int], cells: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the weights ``[H·W]`` of a neuron that sees one cell."""
    image = np.zeros((cells[0] * SIDE, cells[1] * SIDE))
    row, column = cell[0] * SIDE, cell[1] * SIDE
    image[row : row + SIDE, column : column + SIDE] = np.array(weights).reshape(SIDE, SIDE)
    return image.flatten()


def _value_at_zero(function: CellFunction) -> float:
    """Return the sum of the units for a cell of zeros, which the function subtracts."""
    return sum(unit.out * max(unit.bias, 0.0) for unit in function.units)


def _output_layer(weights: NDArray[np.float64], bias: float) -> nn.Module:
    """Return the last layer, with logits -z/2 and z/2."""
    both = np.stack([-weights, weights]) / 2
    return _set_weights(nn.Linear(len(weights), 2), both, [-bias / 2, bias / 2])


def _set_weights(layer: nn.Linear | nn.Conv2d, weights: NDArray[np.float64], biases: list[float]) -> nn.Module:
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights))
        assert layer.bias is not None
        layer.bias.copy_(torch.tensor(biases))
    return layer
