"""The model's answers for the samples of an evaluation, under the output that is explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xaibench.compute.output import OutputOrFunction


class ModelAnswers:
    """The classes that a model assigns to images.

    Args:
        model: The model.
        output: The explained output; None for the defaults of methods and metrics, which all are for one class per
            image.
    """

    def __init__(self, model: nn.Module, output: OutputOrFunction | None) -> None:
        self._model, self._output = model, output
        self._ends_in_sigmoid: bool | None = None if output == "sigmoid" else False

    def check(self, images: Tensor, classes: Sequence[str] | None) -> None:
        """Check that the model accepts the images and has one output per class.

        Raises:
            ValueError: If it does not. A single output has two classes under ``output="sigmoid"``. A function of the
                outputs must return one number per image.
        """
        self._outputs(images, None if callable(self._output) else classes, finite=True)

    def correct(self, images: Tensor, targets: Tensor) -> Tensor | None:
        """Return which images the model classifies correctly.

        Args:
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n]`` bool: the target has the largest output; its probability is above 0.5 for ``"sigmoid"``. None if
            the model has no classes: for a function of the outputs, or a single output that is no sigmoid.

        Raises:
            ValueError: If a target is not a class of the model.
        """
        from xaibench.compute.network_outputs import check_classes

        outputs = self._outputs(images, None, finite=False).cpu()
        if callable(self._output) or outputs.shape[1] < 2:
            return None
        check_classes(targets, outputs.shape[1])
        if self._output == "sigmoid":
            return (outputs.gather(1, targets[:, None]) > 0)[:, 0]
        return outputs.argmax(1) == targets

    def _outputs(self, images: Tensor, classes: Sequence[str] | None, *, finite: bool) -> Tensor:
        """Return logits ``[n, K]``; under ``"sigmoid"`` the logits of both classes for a single output."""
        from xaibench.compute.network_outputs import check_logits, check_scalars, ends_in_sigmoid, probe
        from xaibench.compute.output import two_sided

        if self._ends_in_sigmoid is None:
            self._ends_in_sigmoid = ends_in_sigmoid(self._model, images)
        probabilities = self._ends_in_sigmoid

        def select(found: object, count: int, name: str) -> Tensor:
            if callable(self._output):
                return check_scalars(self._output(found), count)[:, None]
            logits = check_logits(found, count, name)
            return two_sided(logits.logit() if probabilities else logits) if self._output == "sigmoid" else logits

        return probe(self._model, images, classes=classes, finite=finite and not probabilities, select=select)
