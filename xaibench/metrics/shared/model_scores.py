"""Inputs of metrics that call the model, and its class scores, computed in batches; the model is left as it was.

Two optimizations speed up convolutional networks and change their outputs by rounding error only: inputs in the memory
format that convolutions prefer (channels last), and, for many rows on a CPU, a private copy of the network in which
every batch normalization is fused into the convolution before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count, check_finite, check_map_shape
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores, check_reduction, reduce_scores
from xaibench.network.answers import OutputOrFunction, two_sided
from xaibench.network.contract import check_network
from xaibench.network.explained_output import ExplainedOutput, target_margins
from xaibench.network.lending import (
    check_initialized,
    copy_network,
    evaluation_mode,
    place_network,
    plain_checkpoints,
    restored_buffers,
    writes_input,
)
from xaibench.network.outputs import check_exported_batch, check_scalars, model_device_and_dtype, probe
from xaibench.tensors.batching import BatchSize, default_batch_size
from xaibench.tensors.device import precision_context
from xaibench.tensors.inputs import Targets, as_images, as_targets, as_tensor

#: Images ``[n, C, H, W]``, or volumes ``[n, C, D, H, W]``, to outputs ``[n, K]``.
Model: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LabeledImages:
    """Images and their classes, on the device of the model and in its precision.

    Attributes:
        images: ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``; an image is repeated for each of its labels if the
            targets are multi-hot.
        targets: ``[N]`` int64.
        labels: The targets as they were given.
    """

    images: Tensor
    targets: Tensor
    labels: Targets

    def __len__(self) -> int:
        return len(self.images)

    @property
    def pixels(self) -> int:
        """Number of pixels (voxels) per image."""
        return self.images.shape[2:].numel()


def as_samples(model: Model, images: Array, targets: Any, output: object = "probability") -> LabeledImages:
    """Return images and targets as tensors on the model's device; one image ``[C, H, W]`` becomes a batch of one.

    Args:
        model: Decides device and precision.
        images: ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``.
        targets: As :func:`xaibench.network.explained_output.as_targets` accepts them. Multi-hot targets give one
            sample per set label. Ignored if they are None and ``output`` is a callable.
        output: The score of the metric; multi-hot targets need ``"sigmoid"``, ``"logit"`` or a callable.

    Raises:
        ValueError: If the shapes do not match, images are empty, values are not finite, or the model has no weights.
        TypeError: If images are not floating point, or targets are not integers.
    """
    check_initialized(model)
    x = as_tensor(images, "images")
    x = as_images(x[None] if x.ndim == 3 else x)
    y = as_targets(0 if targets is None and callable(output) else targets, len(x))
    if y.rows is not None and output in ("probability", "margin"):
        raise ValueError(
            f"targets: got multi-hot rows and output={output!r}, which is for one class per image. Pass "
            "output='sigmoid' to score the probability of each set label, or output='logit'."
        )
    device, dtype = model_device_and_dtype(model, x)
    with torch.inference_mode(False):
        return LabeledImages(
            (x if y.rows is None else x[y.rows.to(x.device)]).to(device, dtype), y.classes.to(device), y
        )


def as_map_tensor(maps: Array, samples: LabeledImages) -> Tensor:
    """Return maps, with the shape of the images without channels, as a tensor on their device in its own precision.

    Raises:
        ValueError: If the shape does not match the images (the message contains both), or values are not finite.
        TypeError: If the values are not real numbers.
    """
    s = as_tensor(maps, "maps")
    if s.dtype == torch.bool:
        s = s.to(torch.uint8)
    s = s[None] if s.ndim == 2 else s
    check_map_shape(s, (len(samples), *samples.images.shape[2:]))
    check_finite(s, "maps")
    return s.to(samples.images.device)


def checked_inputs(
    model: Model,
    images: Array,
    maps: Array,
    targets: Any,
    output: object,
    batch_size: int | None,
    reduction: Reduction,
    seed: int = 0,
) -> tuple[LabeledImages, Tensor]:
    """Check what every metric that calls the model takes; return the samples and the maps as tensors."""
    check_common(batch_size, reduction, seed)
    samples = as_samples(model, images, targets, output)
    return samples, as_map_tensor(maps, samples)


def check_fraction(name: str, value: float) -> None:
    """Raise a ValueError unless ``value`` is a share of the pixels: above 0, at most 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise ValueError(f"{name} must be a share of the pixels, above 0 and at most 1, got {value!r}.")


def check_fractions(fraction: float | Sequence[float], name: str = "fraction") -> list[float]:
    """Return one or several shares of the pixels as a list.

    Raises:
        ValueError: If there is none, or one is not above 0 and at most 1.
    """
    shares = list(fraction) if isinstance(fraction, Sequence) else [fraction]
    if not shares:
        raise ValueError(f"{name} must be a share of the pixels or a sequence of shares, got an empty sequence.")
    for share in shares:
        check_fraction(name, share)
    return shares


def check_common(batch_size: int | None, reduction: Reduction, seed: int = 0) -> None:
    """Raise an error for an invalid ``batch_size``, ``reduction`` or ``seed``."""
    check_count("batch_size", batch_size, none="for what suits the images")
    check_count("seed", seed, least=0)
    check_reduction(reduction)


def count_of_share(fraction: float, pixels: int) -> int:
    """Convert a fraction of the pixels to a number of pixels, at least 1."""
    return max(1, round(fraction * pixels))


def reduce_tensor(scores: Tensor, reduction: Reduction, like: Array) -> Scores:
    """Reduce scores ``[N]``: their mean, or all of them in the type of ``like``."""
    return reduce_scores(scores.double().cpu().numpy(), reduction, like)


def random_generator(seed: int, index: int) -> np.random.Generator:
    """Return the random generator of draw number ``index``.

    It depends only on the seed and the index and is the same for all samples. A score does not depend on the position
    of its sample in the batch, on the other samples, or on the number of draws.
    """
    return np.random.default_rng([seed, index])


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
        try:
            returned = self._model(rows.clone() if self._copies_input else rows)
        except (RuntimeError, AssertionError) as error:
            check_exported_batch(error)
            raise
        return self._select(returned, len(rows)).double()

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

        Samples are prepared in groups of one batch, which bounds the memory. Within a group every pass is full,
        regardless of the number of points.

        Args:
            samples: Images, whose targets are scored.
            points: Rows per sample.
            prepare: Called with the slice of a group of samples; returns the function that builds its rows.
            shared: An image ``[1, C, H, W]`` that is the last point of every sample; evaluated only once.
        """
        columns = points + (shared is not None)
        scores = torch.empty((len(samples), columns), dtype=torch.float64, device=samples.images.device)
        with torch.inference_mode():
            if shared is not None:
                scores[:, -1] = self.target_scores(self.outputs(shared).expand(len(samples), -1), samples.targets)
            for group in self.rows.slices(len(samples)):
                size, rows, targets = self.rows.size, prepare(group), samples.targets[group]
                flat = torch.arange(len(targets) * points)
                for chunk in torch.split(flat, size):
                    # Point by point: neighboring rows belong to the same point, so a pass contains few points.
                    sample, point = chunk % len(targets), chunk // len(targets)
                    scores[group.start + sample, point] = self._score_rows(rows, targets, sample, point)
        check_finite(scores, "The scores of the model")
        return scores

    def _score_rows(self, rows: MakeRows, targets: Tensor, sample: Tensor, point: Tensor) -> Tensor:
        """Return the scores ``[n]`` of some rows of a group, in smaller batches if GPU memory runs out."""

        def work(part: slice) -> Tensor:
            return self.target_scores(self.outputs(rows(sample[part], point[part])), targets[sample[part]])

        return self.rows.each(len(sample), work)

    def prepare_model(self, samples: LabeledImages, rows: int, *, gradients: bool = False) -> None:
        """Check the model's outputs for the first image, and choose the fastest way to run the model.

        Args:
            samples: Images and targets.
            rows: Number of rows that will be scored.
            gradients: Whether the metric uses the gradient with respect to the images.

        Raises:
            ValueError: As :meth:`probe_outputs`, or if the outputs do not fit ``output``.
        """
        outputs = self.probe_outputs(samples, gradients=gradients)
        if self._explained.output != "logit":
            self._explained.check_activation(samples.images[:2], outputs, remove=False)
        self._choose_fastest(samples.images[:1], outputs, rows)

    def probe_outputs(self, samples: LabeledImages, *, gradients: bool = False, finite: bool = False) -> Tensor:
        """Return the model's outputs ``[1, K]`` for the first image in float64, and set :attr:`classes`.

        Args:
            samples: Images, whose targets are checked.
            gradients: Whether the metric uses the gradient with respect to the images.
            finite: Whether NaN and infinity are refused.

        Raises:
            ValueError: If the model fails on the image or does not return ``[N, K]``, or a target is not a class.
            NetworkContractError: If it is not a deterministic function of one image.
        """
        logits = probe(self._model, samples.images[:1], finite=finite, select=self._select)
        self._copies_input = writes_input(self._model)
        self.classes = self._explained.check_targets(logits, samples.targets, samples.labels)
        check_network(self._model, samples.images, logits, gradients=gradients, select=self._select)
        return logits.double()

    def _choose_fastest(self, image: Tensor, outputs: Tensor, rows: int) -> None:
        """Run convolutions channels last, and many rows in a fused copy, if the outputs stay the same.

        Either may fail: a network that calls ``view`` where ``reshape`` is needed raises an error, and a trace only
        records operations on tensors.
        """
        model = self._model
        if not isinstance(model, nn.Module) or image.dtype == torch.float64:
            return
        if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
            return
        self._memory_format = torch.channels_last
        fuses = rows >= _MIN_ROWS_TO_FUSE and image.device.type == "cpu"
        for fused in (True, False) if fuses else (False,):
            try:
                self._model = _fuse_batchnorm(model) if fused else model
                with torch.inference_mode():
                    if torch.allclose(self.outputs(image), outputs, rtol=1e-3, atol=1e-4):
                        return
            except Exception:  # tracing runs arbitrary code of the model; if it fails, the model runs as it is
                continue
        self._model, self._memory_format = model, torch.contiguous_format


@contextmanager
def model_scorer(
    model: Model,
    samples: LabeledImages,
    points: int,
    *,
    output: ModelOutput,
    batch_size: int | None,
    gradients: bool = False,
) -> Iterator[ModelScorer]:
    """Yield a scorer for ``points`` rows per sample; the model is in evaluation mode inside the block.

    With ``gradients``, the gradient with respect to the images is checked, too.

    Raises:
        ValueError: If the outputs are not ``[N, K]``, a target is not a class of the model, or ``output`` is unknown.
        TypeError: If the model cannot be called.
    """
    if not callable(model):
        raise TypeError(f"model must be callable, images [N, C, H, W] -> [N, K], got {type(model).__name__}.")
    # Weights that were made in inference mode have no gradient, which attacks need.
    model = place_network(model, None) if isinstance(model, nn.Module) else model
    # In TF32 the outputs of a fused copy would differ by more than the tolerance of _choose_fastest.
    with (
        evaluation_mode(model),
        restored_buffers(model),
        plain_checkpoints(),
        precision_context(device=samples.images.device, keeps_autocast=False),
    ):
        scorer = ModelScorer(model, output, batch_size or default_batch_size(samples.images))
        scorer.prepare_model(samples, len(samples) * points, gradients=gradients)
        yield scorer


def _fuse_batchnorm(model: nn.Module) -> nn.Module:
    """Return a channels-last copy whose batch normalizations are fused into the convolutions before them.

    Raises:
        Exception: If the network cannot be traced, or has hooks, which a trace would skip.
    """
    from torch import fx
    from torch.fx.experimental.optimization import fuse

    class Tracer(fx.Tracer):
        """Records calls of this thread only; while torch traces, it intercepts the modules of all threads."""

        thread = threading.get_ident()

        def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if threading.get_ident() != self.thread:
                return forward(*args, **kwargs)
            return super().call_module(m, forward, args, kwargs)

    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise ValueError("The network has hooks.")
    with torch.inference_mode(False):
        copied = copy_network(model)
        fused: nn.Module = fuse(fx.GraphModule(copied, Tracer().trace(copied)), inplace=True, no_trace=True)
        return fused.to(memory_format=torch.channels_last)
