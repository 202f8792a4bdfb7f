"""The front door: :func:`explain`."""

from __future__ import annotations

import copy
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.compute.device import resolve_device
from xaibench.core.compute.input_copies import sparing
from xaibench.core.compute.model_probe import check_classes, check_module, probe
from xaibench.core.compute.modes import unharmed
from xaibench.core.compute.precision import computing, kept_dtype, stated
from xaibench.core.compute.sample_draws import drawing_as
from xaibench.core.progress import ProgressBar
from xaibench.core.vocabulary import Output, Precision
from xaibench.explainers.budgets import explained_within, shares
from xaibench.explainers.explainer_building import build, configured, name_of
from xaibench.explainers.shared.counted_passes import Countable
from xaibench.explainers.shared.explain_checks import check_images, check_maps, check_targets
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.interface import Channels, Explainer, UnsupportedModelError
from xaibench.explainers.shared.layer_runs import with_layer_named
from xaibench.explainers.shared.memory_retry import within_memory
from xaibench.explainers.shared.softmax_end import take_logits

_Images = TypeVar("_Images", Tensor, NDArray[np.floating[Any]])


def explain(
    explainer: str | Explainer | type,
    model: nn.Module | None,
    images: _Images,
    targets: Tensor | NDArray[np.integer[Any]],
    *,
    output: Output | None = None,
    dtype: torch.dtype | Literal["auto"] = "auto",
    device: torch.device | str = "auto",
    precision: Precision | None = None,
    batch_size: int | None = None,
    budget: int | None = None,
    seed: int | None = None,
    channels: Channels | None = None,
    progress: bool = True,
    **parameters: Any,
) -> _Images:
    """Saliency maps of a classifier.

    The model is explained in evaluation mode and comes back as it was given: training mode of every submodule, hooks,
    gradients, precision, device. The state of the global random generators is neither used nor changed.

    Args:
        explainer: A registered name (``xaibench.explainers.EXPLAINERS``), ``"package.module:name"``, an instance or
            class, any callable ``(model, images, targets) -> maps``, or an ``Attribution`` of Captum: a class
            (``captum.attr.Saliency``, ``"captum.attr:Saliency"``) is built on the explained model; an object
            (``captum.attr.Saliency(f)``) explains what its own ``f`` returns, as it is, whatever ``model``. The
            parameters are then Captum's, with its defaults. Layer and neuron attributions are not maps of the image.
        model: Returns logits ``[N, K]`` for images ``[N, C, H, W]``. Of one whose last layer is an ``nn.Softmax``, what
            goes into that is taken for the logits, with a warning. ``None`` will do for the controls, which look at no
            model.
        images: ``[N, C, H, W]``, floating.
        targets: ``[N]``, the class to explain of each sample.
        output: What of the model is explained, taking what it returns for logits: the softmax ``"probability"``, the
            ``"logit"`` (for a model that returns something else: its output as it is), or the ``"margin"`` (see
            :class:`xaibench.explainers.ExplainedOutput`). ``None``: what the explainer's paper explains, that is
            ``explainer.explains`` where it has it (the CAM family, propagation and patterns: the logit), else the
            probability.
        dtype: Of the images, the weights and the maps. ``"auto"``: what ``precision`` is kept in; without one,
            ``model.explain_dtype`` if the model has it (our small networks: float64, because their softmax saturates
            in float32), else that of its parameters.
        device: ``"auto"``: the GPU when there is one. A model that is elsewhere, or of another dtype, is copied.
        precision: How float32 is multiplied. ``"float32"``: exactly, also by a GPU, which would round it to TF32 of its
            own accord; ``"tf32"``: so rounded, where the machine can; ``"bfloat16"``: ``torch.autocast`` runs the
            network in bfloat16 where it deems that safe. The two are faster and less exact: region maps hardly change,
            gradients do (``docs/explainers.md``). ``"float64"``: everything in float64. ``None``: float32 exactly, and
            the dtype as it is.
        batch_size: Rows in one forward pass; ``None``: chosen by the size of the images. It changes the maps by
            no more than rounding, and is halved, with a line in the log, when the GPU's memory does not do. A callable
            that is no explainer of ours gets all images at once.
        budget: The most passes for each image: rows that go forward, and rows that a gradient takes back. So methods
            are compared at equal cost: the explainer gets the largest count that this affords, whatever its own says
            (``docs/explainers.md``). One that has nothing to choose is as without, if that suffices. ``None``: as the
            explainer's parameters say.
        seed: Of the explainers that draw random numbers; ``None``: their own default, 0. Others ignore it. What is
            drawn depends on the seed and the image alone: not on its place in the batch, the device or the precision.
        channels: How the channels become one map (see :func:`xaibench.explainers.reduce_channels`); ``None``: the
            explainer's own default. A single channel is only squeezed.
        progress: Show a progress bar in terminals and notebooks if explaining takes longer than half a second
            (``TQDM_DISABLE=1`` turns off all bars). A warning estimates the time if it exceeds five minutes.
        **parameters: The explainer's own parameters, such as ``n_samples`` for LIME.

    Returns:
        Maps ``[N, H, W]``, signed, in ``dtype``: a tensor on the CPU, or an array where ``images`` is one. A map can be
        zero everywhere (LIME with a strong penalty); nothing is scaled or cut off. ``[N, h, w]``, as large as the
        layer's, of an explainer of feature maps with ``resize=None``.

    Raises:
        UnknownNameError: If no explainer has that name (did you mean).
        UnsupportedModelError: If the explainer cannot treat a layer of the model; named in the message.
        TypeError: If the images are not floating, the targets not integers, or a parameter is not known.
        ValueError: If shapes do not fit, a target is no class of the model, numbers are not finite, there is no such
            device here, or the budget is below the fewest passes that the explainer can do with.

    Warns:
        UserWarning: If the model returns what look like probabilities, and logits are needed; if it takes minutes.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0, 2.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> explain("saliency", model, images, targets, output="logit")
        tensor([[[ 1.,  2.],
                 [ 0., -1.]]])
        >>> explain("lime", model, images, targets, n_samples=200, output="logit").shape
        torch.Size([1, 2, 2])
    """
    check_count("seed", seed, least=0, none="for the explainer's own")
    check_count("budget", budget, least=0, none="for what the explainer's parameters say")
    part = configured(build(explainer, **parameters), batch_size=batch_size, seed=seed, channels=channels)
    x, y = check_images(images), check_targets(targets, len(images))
    if model is not None:
        check_module(model)
        part = with_layer_named(part, name_of(part), model)
    place = resolve_device(device)
    kept = kept_dtype(model, x, dtype, precision, place)
    exactly: Precision = "float64" if kept == torch.float64 else "float32"
    # What is made in inference mode can never have a gradient again, so copies are made outside of it.
    with torch.inference_mode(False):
        x, y = (t.clone() if t.is_inference() else t for t in (x, y))
        with (
            computing(precision or stated() or exactly, place),
            drawing_as(x),
            _progress(part, x, budget, progress) as bar,
        ):
            x_there, y_there = x.to(place, kept), y.to(place)
            explaining = _Explaining(model, x_there, y_there, _output(part, output), budget, bar)
            maps = within_memory(part, x_there, explaining, lambda: explaining.largest)
            maps = maps.to(kept) if stated() == "bfloat16" else maps
        # An explainer that was asked for maps as large as its layer's has them.
        own_size = getattr(part, "resize", "") is None
        checked = check_maps(maps, x, channels, name_of(part), own_size=own_size)
    return checked if isinstance(images, Tensor) else checked.numpy()


class _Explaining:
    """One explanation, which is run as often as the memory asks; ``largest`` is the rows of its largest pass so far."""

    def __init__(
        self,
        model: nn.Module | None,
        images: Tensor,
        targets: Tensor,
        output: Output,
        budget: int | None,
        progress: ProgressBar,
    ) -> None:
        self._model, self._samples, self._output, self._progress = model, (images, targets), output, progress
        self._budget = budget
        self.largest = len(images)

    def __call__(self, part: Explainer) -> Tensor:
        images, targets = self._samples
        if self._model is None:
            if not getattr(getattr(part, "info", None), "control", False):
                raise TypeError(
                    f"{name_of(part)}: got no model, expected a torch.nn.Module; only controls (sobel, laplace, "
                    "uniform, input, centre) need none."
                )
            return part(cast(nn.Module, None), images, targets)
        with unharmed(_moved(self._model, images.device, images.dtype)) as lent:
            explained = ExplainedOutput(lent, self._output).eval()
            _check_model(explained, images, targets)
            explained.watch = self._progress.advance
            try:
                with sparing(lent):
                    if self._budget is None:
                        return part(explained, images, targets)
                    return explained_within(part, self._budget, explained, images, targets)
            except RuntimeError as error:
                if not _without_gradient(error):
                    raise
                raise UnsupportedModelError(
                    f"{name_of(part)} needs the gradient of the output by the images, and something in the network "
                    "cuts it off (such as detach, numpy or a rounding). Use an explainer that only perturbs the images "
                    "(pfi, shapley_sampling, kernel_shap, lime, rise, occlusion), or take the cut out."
                ) from error
            finally:
                self.largest = max(self.largest, explained.largest)


def _progress(part: Explainer, images: Tensor, budget: int | None, shown: bool) -> ProgressBar:
    """In rows that go through the network; how many come, the explainers know that ask it often."""
    if not isinstance(part, Countable):
        return ProgressBar(name_of(part), None, "row", shown=shown)
    advice = f"Fewer rows: {part.cheaper()}, fewer images than {len(images)}; or a GPU."

    def passes() -> int:
        if budget is None:
            return part.passes(images)
        own = [(some, images[which]) for which, some in shares(part, budget, images)]
        return sum(some.passes(x) for some, x in own if isinstance(some, Countable))

    return ProgressBar(name_of(part), passes, "row", shown=shown, advice=advice)


def _without_gradient(error: RuntimeError) -> bool:
    """Whether torch found no way from the output back to the images."""
    said = str(error)
    return "does not require grad" in said or "not have been used in the graph" in said


def _output(part: Explainer, output: Output | None) -> Output:
    """What of the model is explained: as asked for, else what the explainer is defined on."""
    own: Output | None = getattr(part, "explains", None)
    if own and output and getattr(part, "explains_only", False) and output != own:
        raise ValueError(f"{name_of(part)} is defined on the {own} only, got output={output!r}; leave output out.")
    return output or own or "probability"


def _moved(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model itself if it is where and what it should be, else a copy that is."""
    tensors = [*model.parameters(), *model.buffers()]
    if all(t.device == device and (t.dtype == dtype or not t.is_floating_point()) for t in tensors):
        return model
    return copy.deepcopy(model).to(device, dtype)


def _check_model(explained: ExplainedOutput, images: Tensor, targets: Tensor) -> None:
    outputs = probe(explained.network, images[:2])
    classes = outputs.shape[1]
    if classes < 2 and explained.output != "logit":
        raise ValueError(
            f"The model returns [N, 1]: with a single class there is no {explained.output} to explain. Pass "
            "output='logit', or wrap the model so that it returns two classes, torch.stack([-z, z], 1) / 2."
        )
    check_classes(targets, classes)
    take_logits(explained.network, images[:1], outputs, explained.output)
