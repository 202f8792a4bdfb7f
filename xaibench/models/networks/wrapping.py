"""A network whose inputs or outputs are adapted by a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Wrapped(nn.Module):
    """A network that is called through a function, for networks with further inputs or with other outputs.

    Args:
        network: Any module; its layers keep their names, after ``"network."``.
        function: ``(network, images) -> outputs``. It gets the network as an argument, so that it also works with
            copies of it, on another device or in another precision.

    Example:
        >>> import torch
        >>> bilinear = torch.nn.Bilinear(4, 2, 3)
        >>> model = Wrapped(bilinear, lambda network, images: network(images.flatten(1), torch.ones(len(images), 2)))
        >>> model(torch.zeros(5, 1, 2, 2)).shape
        torch.Size([5, 3])
    """

    def __init__(self, network: nn.Module, function: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, images: Tensor) -> Any:
        """Call the function.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            What the function returns.
        """
        return self.function(self.network, images)
