"""Asking a model for its score of a class, in batches, as fast as it goes, and giving it back unharmed.

Two things make the passes of a convolutional network cheaper and change its outputs by no more than rounding: rows in
the memory layout that its convolutions prefer, and, for many rows, a private copy of the network in which every batch
normalisation is folded into the convolution before it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.compute.modes import evaluating
from xaibench.core.compute.precision import computing
from xaibench.metrics.shared.model_inputs import Model, Samples

_LOGGER = logging.getLogger("xaibench")

#: What is done with the outputs of the model. ``"softmax"``: they are logits, and the scores are their softmax, taken
#: in float64. ``"identity"``: the scores are the outputs (probabilities already, or logits on purpose). A callable:
#: the scores are what it makes, ``[n, K]``, of the outputs ``[n, K]`` in float64.
Output: TypeAlias = Literal["softmax", "identity"] | Callable[[Tensor], Tensor]

#: Makes the rows ``[n, C, H, W]`` from the indices ``[n]`` of samples in the group and of points. The indices are
#: on the CPU, by which tensors of any device can be indexed: who reads them does not wait for a GPU.
Rows: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Numbers that one forward pass takes by default: larger passes are slower on a CPU, because they leave the cache, and
# fewer rows than _MIN_ROWS leave its convolutions idle, whatever the size of the images.
_CPU_NUMBERS, _GPU_NUMBERS, _MIN_ROWS = 2**17, 2**24, 8

# From so many rows on, the time that folding saves (a seventh of each pass) exceeds what it costs (some five passes).
_FOLD_ROWS = 64


class Classifier:
    """A model as a metric sees it; made by :func:`asked`.

    Attributes:
        batch_size: Rows in one forward pass.
        classes: K.
    """

    def __init__(self, model: Model, output: Output, batch_size: int) -> None:
        self.batch_size = batch_size
        self.classes = 0
        self._model = model
        self._output = output
        self._layout = torch.contiguous_format

    def outputs(self, rows: Tensor) -> Tensor:
        """What the model returns, ``[n, K]`` float64."""
        found: object = self._model(rows.contiguous(memory_format=self._layout))
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(rows):
            raise ValueError(
                f"The model must return [N, K] for images [N, C, H, W], got {shape} for images {list(rows.shape)}. "
                "Wrap a model with one output z a sample so that it returns torch.stack([0 * z, z], 1)."
            )
        return found.double()

    def read(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The scores ``[n]`` of the targets, given what the model returned."""
        if self._output == "softmax":
            scores = outputs.softmax(1)
        elif self._output == "identity":
            scores = outputs
        else:
            scores = self._output(outputs)
            if scores.shape != outputs.shape:
                raise ValueError(
                    f"output must make [N, K] of the outputs [N, K], got {list(scores.shape)} of {list(outputs.shape)}."
                )
        return scores.gather(1, targets[:, None])[:, 0]

    def ascend(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What an attack differentiates ``[n]``: its gradient has the signs of the scores' gradient.

        For the softmax it is the logit minus the log-sum-exp of the others, of which the probability is the logistic
        function: where the probability rounds to one and its gradient to zero, this one does not.
        """
        if self._output != "softmax":
            return self.read(outputs, targets)
        logits = outputs.gather(1, targets[:, None])
        others = outputs.scatter(1, targets[:, None], -torch.inf)
        return logits[:, 0] - others.logsumexp(1)

    def ask(self, samples: Samples, points: int, prepare: Callable[[slice], Rows]) -> Tensor:
        """The scores ``[N, points]`` of rows that are made as they are needed.

        A group of ``batch_size`` samples is prepared at a time, so that the memory is bounded by ``batch_size``; within
        a group every pass is full, whatever the number of points.

        Args:
            samples: Whose targets are scored.
            points: Rows for each sample.
            prepare: Called with the group of samples, returns what makes its rows.
        """
        scores = torch.empty((len(samples), points), dtype=torch.float64, device=samples.images.device)
        size = self.batch_size
        with torch.inference_mode():
            for start in range(0, len(samples), size):
                group = slice(start, min(start + size, len(samples)))
                rows, targets = prepare(group), samples.targets[group]
                flat = torch.arange(len(targets) * points)
                for chunk in torch.split(flat, size):
                    # Point by point: neighbouring rows share their point, and few points are in a pass.
                    scores[start + chunk % len(targets), chunk // len(targets)] = self._score(rows, targets, chunk)
        return checked_scores(scores)

    def _score(self, rows: Rows, targets: Tensor, chunk: Tensor) -> Tensor:
        """The scores of some rows of a group, in halves when the GPU's memory does not do."""
        if len(chunk) > self.batch_size:
            return torch.cat([self._score(rows, targets, part) for part in torch.split(chunk, self.batch_size)])
        sample, point = chunk % len(targets), chunk // len(targets)
        try:
            return self.read(self.outputs(rows(sample, point)), targets[sample])
        except torch.cuda.OutOfMemoryError:
            if len(chunk) == 1:
                raise
            self.batch_size = len(chunk) // 2
            _LOGGER.warning("out of GPU memory with %d rows in a pass; going on with %d", len(chunk), self.batch_size)
        # Only here, after the error has let go of the tensors of the failed pass.
        torch.cuda.empty_cache()
        return self._score(rows, targets, chunk)

    def examine(self, samples: Samples, rows: int) -> None:
        """Look at what the model returns for the first image, and choose how to run it.

        Raises:
            ValueError: As :meth:`look`, or if the outputs do not fit to ``output``.
        """
        outputs = self.look(samples)
        self._check_output(outputs)
        self._choose_fastest(samples.images[:1], outputs, rows)

    def look(self, samples: Samples) -> Tensor:
        """What the model returns for the first image, ``[1, K]`` float64; counts the classes.

        Raises:
            ValueError: If the model cannot take it, returns no ``[N, K]``, or a target is no class of it.
        """
        one = samples.images[:1]
        try:
            with torch.no_grad():
                outputs = self.outputs(one)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(
                f"The model cannot take images of shape {list(one.shape)}, {one.dtype}, on {one.device}: {error}"
            ) from error
        self.classes = outputs.shape[1]
        targets = samples.targets
        wrong = (targets < 0) | (targets >= self.classes)
        if wrong.any():
            where = int(wrong.int().argmax())
            raise ValueError(
                f"targets must lie in 0 to {self.classes - 1}, since the model returns {self.classes} output(s), "
                f"got {int(targets[where])} for sample {where}."
            )
        return outputs

    def _check_output(self, outputs: Tensor) -> None:
        if self._output != "softmax":
            return
        if self.classes == 1:
            raise ValueError(
                "output='softmax' of a model with one output is 1 always. Pass output=torch.sigmoid, or 'identity'."
            )
        if outputs.min() >= 0 and (outputs.sum(1) - 1).abs().max() < 1e-4 and outputs.max() < 1:
            warnings.warn(
                "the outputs of the model look like probabilities, and output='softmax' takes them for logits. "
                "Pass output='identity' if its last layer is a softmax.",
                UserWarning,
                stacklevel=2,
            )

    def _choose_fastest(self, image: Tensor, outputs: Tensor, rows: int) -> None:
        """Run convolutions channels last, for many rows in a folded copy, if that gives the same outputs.

        It need not: a network that calls ``view`` where ``reshape`` is needed fails, and a trace only follows what the
        network does with tensors.
        """
        given = self._model
        if not isinstance(given, nn.Module) or image.dtype == torch.float64:
            return
        if not any(isinstance(module, nn.Conv2d) for module in given.modules()):
            return
        self._layout = torch.channels_last
        for make in (_folded, _as_it_is) if rows >= _FOLD_ROWS else (_as_it_is,):
            try:
                self._model = make(given)
                with torch.inference_mode():
                    if torch.allclose(self.outputs(image), outputs, rtol=1e-3, atol=1e-4):
                        return
            except Exception:  # whatever foreign code may raise when it is traced: then it runs as it is
                continue
        self._model, self._layout = given, torch.contiguous_format


@contextmanager
def asked(
    model: Model, samples: Samples, points: int, *, output: Output, batch_size: int | None
) -> Iterator[Classifier]:
    """Ask ``model`` for ``points`` rows of each sample, in evaluation mode; it comes back as it was.

    Raises:
        ValueError: If the outputs are no ``[N, K]``, a target is no class of the model, or ``output`` is unknown.
        TypeError: If the model cannot be called.
    """
    if not callable(model):
        raise TypeError(f"model must be callable, images [N, C, H, W] -> [N, K], got {type(model).__name__}.")
    if output not in ("softmax", "identity") and not callable(output):
        raise ValueError(f"output must be 'softmax', 'identity' or a callable, got {output!r}.")
    # In TF32 a folded copy would differ from the network by more than _choose_fastest lets pass.
    with evaluating(model), computing(device=samples.images.device):
        classifier = Classifier(model, output, batch_size or default_rows(samples.images))
        classifier.examine(samples, len(samples) * points)
        yield classifier


def default_rows(images: Tensor) -> int:
    """Rows in one forward pass when the caller names none."""
    numbers = _CPU_NUMBERS if images.device.type == "cpu" else _GPU_NUMBERS
    return max(_MIN_ROWS, numbers // images[0].numel())


def checked_scores(scores: Tensor) -> Tensor:
    """The scores ``[N, points]``, or the error that says where the model returned something else than numbers."""
    finite = scores.isfinite().all(1)
    if not finite.all():
        raise ValueError(
            f"The model's score is NaN or infinite for {int((~finite).sum())} of {len(finite)} samples (the first is "
            f"sample {int(finite.int().argmin())}). Look at its outputs for these images."
        )
    return scores


def _as_it_is(model: nn.Module) -> nn.Module:
    return model


def _folded(model: nn.Module) -> nn.Module:
    """A copy, channels last, in which batch normalisations are part of the convolutions before them.

    Raises:
        Exception: If the network cannot be traced, or hooks would not be heard in its trace.
    """
    from torch.fx.experimental.optimization import fuse

    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise ValueError("The network has hooks.")
    with torch.inference_mode(False):
        folded: nn.Module = fuse(model)
        return folded.to(memory_format=torch.channels_last)
