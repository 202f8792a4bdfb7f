"""Asking a model for its score of a class, in batches, as fast as it goes, and giving it back unharmed.

Two things make the passes of a convolutional network cheaper and change its outputs by no more than rounding: rows in
the memory layout that its convolutions prefer, and, for many rows, a private copy of the network in which every batch
normalisation is folded into the convolution before it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.compute.input_copies import writes_input
from xaibench.core.compute.model_probe import check_classes, check_logits, probe
from xaibench.core.compute.modes import evaluating
from xaibench.core.compute.precision import computing
from xaibench.core.compute.row_memory import Rows, default_rows
from xaibench.metrics.shared.model_inputs import Model, Samples

#: What is done with the outputs of the model. ``"softmax"``: they are logits, and the scores are their softmax, taken
#: in float64. ``"identity"``: the scores are the outputs (probabilities already, or logits on purpose). A callable:
#: the scores are what it makes, ``[n, K]``, of the outputs ``[n, K]`` in float64.
Output: TypeAlias = Literal["softmax", "identity"] | Callable[[Tensor], Tensor]

#: Makes the rows ``[n, C, H, W]`` from the indices ``[n]`` of samples in the group and of points. The indices are
#: on the CPU, by which tensors of any device can be indexed: who reads them does not wait for a GPU.
MakeRows: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# From so many rows on, the time that folding saves (a seventh of each pass) exceeds what it costs (some five passes).
_FOLD_ROWS = 64


class Classifier:
    """A model as a metric sees it; made by :func:`asked`.

    Attributes:
        rows: How many of them one forward pass takes.
        classes: K.
    """

    def __init__(self, model: Model, output: Output, batch_size: int) -> None:
        self.rows = Rows(batch_size)
        self.classes = 0
        self._model = model
        self._output = output
        self._layout = torch.contiguous_format
        self._copies = False

    def outputs(self, rows: Tensor) -> Tensor:
        """What the model returns, ``[n, K]`` float64."""
        rows = rows.contiguous(memory_format=self._layout)
        return check_logits(self._model(rows.clone() if self._copies else rows), len(rows)).double()

    def read(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The scores ``[n]`` of the targets, given what the model returned."""
        return self._of_classes(outputs).gather(1, targets[:, None])[:, 0]

    def _of_classes(self, outputs: Tensor) -> Tensor:
        if self._output == "softmax":
            return outputs.softmax(1)
        if self._output == "identity":
            return outputs
        scores = self._output(outputs)
        if scores.shape != outputs.shape:
            raise ValueError(
                f"output must make [N, K] of the outputs [N, K], got {list(scores.shape)} of {list(outputs.shape)}."
            )
        return scores

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

    def ask(
        self, samples: Samples, points: int, prepare: Callable[[slice], MakeRows], shared: Tensor | None = None
    ) -> Tensor:
        """The scores ``[N, points]``, or one more with ``shared``, of rows that are made as they are needed.

        A group of as many samples as a pass takes rows is prepared at a time, so that the memory is bounded; within a
        group every pass is full, whatever the number of points.

        Args:
            samples: Whose targets are scored.
            points: Rows for each sample.
            prepare: Called with the group of samples, returns what makes its rows.
            shared: An image ``[1, C, H, W]`` that is one more point of every sample, the last; asked once.
        """
        columns = points + (shared is not None)
        scores = torch.empty((len(samples), columns), dtype=torch.float64, device=samples.images.device)
        with torch.inference_mode():
            if shared is not None:
                scores[:, -1] = self._of_classes(self.outputs(shared))[0].gather(0, samples.targets)
            for group in self.rows.parts(len(samples)):
                size, rows, targets = self.rows.size, prepare(group), samples.targets[group]
                flat = torch.arange(len(targets) * points)
                for chunk in torch.split(flat, size):
                    # Point by point: neighbouring rows share their point, and few points are in a pass.
                    sample, point = chunk % len(targets), chunk // len(targets)
                    scores[group.start + sample, point] = self._score(rows, targets, sample, point)
        return checked_scores(scores)

    def _score(self, rows: MakeRows, targets: Tensor, sample: Tensor, point: Tensor) -> Tensor:
        """The scores ``[n]`` of some rows of a group, in halves when the GPU's memory does not do."""

        def work(part: slice) -> Tensor:
            return self.read(self.outputs(rows(sample[part], point[part])), targets[sample[part]])

        return self.rows.each(len(sample), work)

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
        logits = probe(self._model, samples.images[:1], finite=False)
        self.classes, self._copies = logits.shape[1], writes_input(self._model)
        check_classes(samples.targets, self.classes)
        return logits.double()

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
