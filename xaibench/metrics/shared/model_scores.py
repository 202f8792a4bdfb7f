"""Class scores of a model, computed in batches; the model is left as it was.

Two optimizations speed up convolutional networks and change their outputs by rounding error only: inputs in the memory
format that convolutions prefer (channels last), and, for many rows on a CPU, a private copy of the network in which
every batch normalization is fused into the convolution before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from xaibench.compute.batching import BatchSize, default_batch_size
from xaibench.compute.device import precision_context
from xaibench.compute.lending import evaluation_mode, writes_input
from xaibench.compute.network_outputs import check_scalars, probe
from xaibench.compute.output import ExplainedOutput, OutputOrFunction, target_margins, two_sided
from xaibench.metrics.shared.model_inputs import LabeledImages, Model

#: The class scores that a metric computes from the model's outputs ``[n, K]``, in float64. ``"probability"``: their
#: softmax. ``"sigmoid"``: the sigmoid of each, or the outputs as they are if the model ends in a sigmoid; a single
#: output z has class 1 with sigmoid(z) and class 0 with sigmoid(-z). ``"logit"``: the outputs as they are, also for a
#: model that returns probabilities. ``"margin"``: each output minus the log-sum-exp of the others. A callable gets what
#: the model returned (a tensor ``[n, K]`` in float64) and returns one score per image ``[n]``, regardless of the
#: targets, or class scores ``[n, K]``.
ModelOutput: TypeAlias = OutputOrFunction

#: Builds the rows ``[n, C, H, W]`` for the indices ``[n]`` of samples in the group and of points. The indices are on
#: the CPU and can index tensors of any device without synchronizing with a GPU.
MakeRows: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Fusing batch normalization saves about a seventh of each pass and costs about five passes. On a GPU it saves nothing.
_MIN_ROWS_TO_FUSE = 64


class ModelScorer:
    """Computes class scores of a model; created by :func:`model_scorer`.

    Attributes:
        rows: Number of rows per forward pass.
        classes: Number of classes K; 0 if one function of the outputs is scored.
    """

    def __init__(self, model: Model, output: ModelOutput, batch_size: int) -> None:
        self.rows = BatchSize(batch_size)
        self.classes = 0
        self._model = model
        self._explained = ExplainedOutput(cast(nn.Module, model), output, requested=output)
        self._memory_format = torch.contiguous_format
        self._copies_input = False

    def outputs(self, rows: Tensor) -> Tensor:
        """Return the model's outputs ``[n, K]``, or the scores of a callable ``output``, in float64."""
        rows = rows.contiguous(memory_format=self._memory_format)
        return self._select(self._model(rows.clone() if self._copies_input else rows), len(rows)).double()

    def _select(self, returned: Any, count: int, name: str = "The model") -> Tensor:
        function = self._explained.output
        if not callable(function) or not (isinstance(returned, Tensor) and returned.ndim == 2):
            return self._explained.select(returned, count, name)
        scores = function(returned.double())
        if isinstance(scores, Tensor) and scores.shape == returned.shape:
            return scores
        return check_scalars(scores, count)[:, None]

    def target_scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the scores ``[n]`` of the targets, given the model's outputs ``[n, K]``."""
        return self._explained.target_scores(outputs, targets)

    def attack_objective(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return a function ``[n]`` of the outputs whose gradient has the same signs as the gradient of the scores.

        For probabilities it is the margin, whose logistic function is the probability, and for sigmoids the logit.
        Where the probability rounds to one and its gradient to zero, the gradient of these does not vanish.
        """
        if self._explained.output == "probability":
            return target_margins(outputs, targets)
        if self._explained.output == "sigmoid" and not self._explained.outputs_are_probabilities:
            return two_sided(outputs).gather(1, targets[:, None])[:, 0]
        return self.target_scores(outputs, targets)

    def predict(
        self, samples: LabeledImages, points: int, prepare: Callable[[slice], MakeRows], shared: Tensor | None = None
    ) -> Tensor:
        """Return the target scores ``[N, points]``, plus one column with ``shared``; rows are built when needed.

        LabeledImages are prepared in groups of one batch, which bounds the memory. Within a group every pass is full,
        regardless of the number of points.

        Args:
            samples: LabeledImages, whose targets are scored.
            points: Rows per sample.
            prepare: Called with the slice of a group of samples; returns the function that builds its rows.
            shared: An image ``[1, C, H, W]`` that is the last point of every sample; evaluated only once.
        """
        columns = points + (shared is not None)
        scores = torch.empty((len(samples), columns), dtype=torch.float64, device=samples.images.device)
        with torch.inference_mode():
            if shared is not None:
                scores[:, -1] = self.target_scores(self.outputs(shared).expand(len(samples), -1), samples.targets)
            for group in self.rows.parts(len(samples)):
                size, rows, targets = self.rows.size, prepare(group), samples.targets[group]
                flat = torch.arange(len(targets) * points)
                for chunk in torch.split(flat, size):
                    # Point by point: neighboring rows belong to the same point, so a pass contains few points.
                    sample, point = chunk % len(targets), chunk // len(targets)
                    scores[group.start + sample, point] = self._score_rows(rows, targets, sample, point)
        return check_scores(scores)

    def _score_rows(self, rows: MakeRows, targets: Tensor, sample: Tensor, point: Tensor) -> Tensor:
        """Return the scores ``[n]`` of some rows of a group, in smaller batches if GPU memory runs out."""

        def work(part: slice) -> Tensor:
            return self.target_scores(self.outputs(rows(sample[part], point[part])), targets[sample[part]])

        return self.rows.each(len(sample), work)

    def prepare_model(self, samples: LabeledImages, rows: int) -> None:
        """Check the model's outputs for the first image, and choose the fastest way to run the model.

        Raises:
            ValueError: As :meth:`probe_outputs`, or if the outputs do not fit ``output``.
        """
        outputs = self.probe_outputs(samples)
        if self._explained.output != "logit":
            self._explained.check_activation(samples.images[:1], outputs, remove=False)
        self._choose_fastest(samples.images[:1], outputs, rows)

    def probe_outputs(self, samples: LabeledImages) -> Tensor:
        """Return the model's outputs ``[1, K]`` for the first image in float64, and set :attr:`classes`.

        Raises:
            ValueError: If the model fails on the image or does not return ``[N, K]``, or a target is not a class.
        """
        logits = probe(self._model, samples.images[:1], finite=False, select=self._select)
        self._copies_input = writes_input(self._model)
        self.classes = self._explained.check_targets(logits, samples.targets, samples.labels)
        return logits.double()

    def _choose_fastest(self, image: Tensor, outputs: Tensor, rows: int) -> None:
        """Run convolutions channels last, and many rows in a fused copy, if the outputs stay the same.

        Either may fail: a network that calls ``view`` where ``reshape`` is needed raises an error, and a trace only
        records operations on tensors.
        """
        given = self._model
        if not isinstance(given, nn.Module) or image.dtype == torch.float64:
            return
        if not any(isinstance(module, nn.Conv2d) for module in given.modules()):
            return
        self._memory_format = torch.channels_last
        fuses = rows >= _MIN_ROWS_TO_FUSE and image.device.type == "cpu"
        for fused in (True, False) if fuses else (False,):
            try:
                self._model = _fuse_batchnorm(given) if fused else given
                with torch.inference_mode():
                    if torch.allclose(self.outputs(image), outputs, rtol=1e-3, atol=1e-4):
                        return
            except Exception:  # tracing runs arbitrary code of the model; if it fails, the model runs as it is
                continue
        self._model, self._memory_format = given, torch.contiguous_format


@contextmanager
def model_scorer(
    model: Model, samples: LabeledImages, points: int, *, output: ModelOutput, batch_size: int | None
) -> Iterator[ModelScorer]:
    """Yield a scorer for ``points`` rows per sample; the model is in evaluation mode inside the block.

    Raises:
        ValueError: If the outputs are not ``[N, K]``, a target is not a class of the model, or ``output`` is unknown.
        TypeError: If the model cannot be called.
    """
    if not callable(model):
        raise TypeError(f"model must be callable, images [N, C, H, W] -> [N, K], got {type(model).__name__}.")
    # In TF32 the outputs of a fused copy would differ by more than the tolerance of _choose_fastest.
    with evaluation_mode(model), precision_context(device=samples.images.device):
        scorer = ModelScorer(model, output, batch_size or default_batch_size(samples.images))
        scorer.prepare_model(samples, len(samples) * points)
        yield scorer


def check_scores(scores: Tensor) -> Tensor:
    """Return the scores ``[N, points]``; raise a ValueError that names the first sample with NaN or infinity."""
    finite = scores.isfinite().all(1)
    if not finite.all():
        raise ValueError(
            f"The model's score is NaN or infinite for {int((~finite).sum())} of {len(finite)} samples (the first is "
            f"sample {int(finite.int().argmin())}). Check the model's outputs for these images."
        )
    return scores


def _fuse_batchnorm(model: nn.Module) -> nn.Module:
    """Return a channels-last copy whose batch normalizations are fused into the convolutions before them.

    Raises:
        Exception: If the network cannot be traced, or has hooks, which a trace would skip.
    """
    from torch.fx.experimental.optimization import fuse

    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise ValueError("The network has hooks.")
    with torch.inference_mode(False):
        fused: nn.Module = fuse(model)
        return fused.to(memory_format=torch.channels_last)
