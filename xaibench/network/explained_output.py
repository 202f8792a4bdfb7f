"""The output of a network that is explained or scored, and the classes for which it is.

The output is the probability, logit or margin of a class, or any function of the network's return value.

The head is a function and not a module, so explainers that go through the modules (LRP, DeepLIFT) see no softmax layer.

The softmax of a confident network saturates: p rounds to 1, and the textbook gradient ``p_i (g_i - sum_j g_j p_j)``
cancels to exactly zero. The equivalent form ``p_i sum_j p_j (g_i - g_j)`` does not cancel. It is accurate until the
other probabilities underflow, at a difference of about 700 between the logits in float64 (37 for the textbook form).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice
from xaibench.core.messages import warn_caller
from xaibench.core.types import Output
from xaibench.network.answers import Activation, OutputOrFunction, ends_in_sigmoid, skip_last_layer, two_sided
from xaibench.network.calls import LayerRun, record_layer_runs
from xaibench.network.outputs import check_classes, check_logits, check_scalars
from xaibench.tensors.inputs import Targets

#: Numbers in [0, 1] that are taken as evidence of probabilities. Fewer may be logits that are so by chance.
_EVIDENCE = 16

#: Tolerance for the sum of the probabilities in half precision.
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}


class UnsupportedModelError(ValueError):
    """The explainer does not support this network; the message names the layer and an alternative."""


class ExplainedOutput(nn.Module):
    """The network with a head that computes the explained output.

    Args:
        network: Returns logits ``[N, K]``, or a structure that contains them
            (:func:`xaibench.network.outputs.find_logits`). For a function as ``output``: anything.
        output: ``"probability"``: the softmax of the logits. ``"sigmoid"``: the sigmoid of each logit, the probability
            of an independent label; a network with one output z has class 1 with sigmoid(z) and class 0 with
            sigmoid(-z). ``"logit"``: the logits. ``"margin"``: each logit minus the log-sum-exp of the others; its
            gradient is that of the probability up to one factor per sample. A function of the network's outputs
            returns one number per image ``[N]``, which is then the only column.
        requested: The output that the user asked for; None if ``output`` is a default.
        from_logits: Whether the explainer propagates from the logit and sees no head (``explains_only``). Under
            ``"sigmoid"``, the logits are then the explained output.

    Attributes:
        network: The network.
        output: The explained output.
        requested: The output that the user asked for; None if ``output`` is a default.
        from_logits: Whether the explainer propagates from the logit and sees no head.
        outputs_are_probabilities: Whether the network itself applies the sigmoid.
        largest_pass: Number of rows of the largest pass so far.
        gave_gradient: Whether a gradient of the explained output was computed.
        on_rows: Called with the number of rows of every forward pass and of every backward pass.

    Example:
        >>> import torch
        >>> network, logits = torch.nn.Identity(), torch.tensor([[3.0, 1.0]])
        >>> ExplainedOutput(network, "margin")(logits)
        tensor([[ 2., -2.]])
        >>> ExplainedOutput(network, lambda outputs: outputs[:, 0] - outputs[:, 1])(logits)
        tensor([[2.]])
    """

    output: OutputOrFunction
    requested: OutputOrFunction | None

    def __init__(
        self,
        network: nn.Module,
        output: OutputOrFunction = "probability",
        *,
        requested: OutputOrFunction | None = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__()
        if not callable(output):
            check_choice("output", output, get_args(Output))
        self.network = network
        self.output = output
        self.requested = requested
        self.from_logits = from_logits
        self.outputs_are_probabilities = False
        self.largest_pass = 0
        self.gave_gradient = False
        self.on_rows: Callable[[int], None] = lambda rows: None

    def forward(self, images: Tensor) -> Tensor:
        """Compute the explained output.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            ``[N, K]``: probabilities, logits or margins; ``[N, 1]`` for a function of the outputs.
        """
        self.largest_pass = max(self.largest_pass, images.shape[0])
        logits = self.select(self.network(images), len(images))
        self.on_rows(images.shape[0])
        if logits.requires_grad:
            rows, hooked = images.shape[0], cast(Any, logits)
            if rows == 1:
                correct_gradient_of_single_image(logits)
            hooked.register_hook(partial(self._count_gradient, rows))
        # Under autocast the logits are bfloat16.
        return self.head(logits.to(torch.promote_types(logits.dtype, images.dtype)))

    def _count_gradient(self, rows: int, gradient: Tensor) -> None:
        self.gave_gradient = True
        self.on_rows(rows)

    def select(self, returned: object, count: int, name: str = "The model") -> Tensor:
        """Return the logits in the return value of the network, or the value of the function ``output``.

        Args:
            returned: What the network returned.
            count: Number of images N.
            name: Name of the network in errors.

        Returns:
            ``[N, K]``, or ``[N, 1]`` for a function.

        Raises:
            ValueError: If there are no logits, or the function returns something else than one number per image.
        """
        if callable(self.output):
            return check_scalars(self.output(returned), count)[:, None]
        return check_logits(returned, count, name)

    def head(self, logits: Tensor) -> Tensor:
        """Compute the explained output from the logits.

        Args:
            logits: ``[N, K]``, as :meth:`select` returns them.

        Returns:
            ``[N, K]``: probabilities, logits or margins.
        """
        if self.output == "probability":
            return exact_softmax(logits)
        if self.output == "sigmoid":
            if self.outputs_are_probabilities:
                return torch.cat([1 - logits, logits], 1) if logits.shape[1] == 1 else logits
            return two_sided(logits) if self.from_logits else exact_sigmoid(two_sided(logits))
        return class_margins(logits) if self.output == "margin" else logits

    def target_scores(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute the explained output of the targets only.

        Args:
            logits: ``[N, K]``, as :meth:`select` returns them.
            targets: ``[N]``; ignored if there is one column.

        Returns:
            ``[N]``.
        """
        if self.output == "margin":
            return target_margins(logits, targets)
        values = self.head(logits)
        return values[:, 0] if values.shape[1] == 1 else values.gather(1, targets[:, None])[:, 0]

    def check_targets(self, logits: Tensor, targets: Tensor, labels: Targets) -> int:
        """Check that all targets are classes of the network.

        Args:
            logits: ``[n, K]``, as :meth:`select` returns them for some images.
            targets: ``[N]``.
            labels: The targets as they were requested.

        Returns:
            The number of classes; 0 for a function of the outputs, whose one column belongs to no class.

        Raises:
            ValueError: If a target is not a class, or multi-hot rows do not have K columns.
        """
        classes = logits.shape[1]
        if labels.labels not in (None, classes):
            raise ValueError(
                f"targets: multi-hot rows of {labels.labels} labels, but the model has {classes} outputs; expected "
                f"[N, {classes}]."
            )
        if classes == 1:
            classes = 0 if callable(self.output) else 2 if self.output == "sigmoid" else 1
        if classes:
            check_classes(targets, classes)
        return classes

    def check_activation(self, images: Tensor, outputs: Tensor, *, remove: bool = True) -> None:
        """Detect a softmax or sigmoid at the end of the network, so that no activation is applied twice.

        The softmax of a softmax is flat: the maps of Integrated Gradients, for example, shrink to a quarter.

        Args:
            images: ``[n, C, H, W]``; the network is called with the first two.
            outputs: ``[m, K]``, as :meth:`select` returns them for the first of these images.
            remove: Replace a final layer that is a softmax or sigmoid (for explainers that begin at the logits also a
                log-softmax) by the identity, inside
                :func:`xaibench.network.lending.restore_model_state`, which restores it.

        Raises:
            ValueError: If the network ends in a sigmoid, and an output other than ``"sigmoid"`` and ``"logit"`` was
                requested, or none. If there is a single output, whose probability is always 1.
            UnsupportedModelError: If the explainer needs logits, and the network computes its sigmoid by a function.

        Warns:
            UserWarning: If a layer is removed that the requested output does not expect, or the outputs look like
                probabilities and are taken for logits.
        """
        if outputs.shape[1] == 1 and self.output in ("probability", "margin"):
            raise ValueError(
                f"The model returns [N, 1]: with a single class there is no {self.output}. Pass output='sigmoid' "
                "(class 1 has sigmoid(z), class 0 sigmoid(-z)) or output='logit', or wrap the model so that it returns "
                "two classes, torch.stack([-z, z], 1) / 2."
            )
        values = outputs.double()
        # One synchronization with a GPU instead of three.
        low, high, away = torch.stack([values.min(), values.max(), (values.sum(1) - 1).abs().max()]).tolist()
        if callable(self.output) or high > 1:
            return
        if low < 0:
            if self.from_logits and remove and high <= 0 and bool((values.logsumexp(1).abs() < 1e-3).all()):
                self._skip_softmax(images, "log_softmax")
            return
        # The sigmoid first: probabilities of two independent labels may sum to 1 by chance.
        name = skip_last_layer(self.network, images, "sigmoid") if remove else ""
        kind = ""
        if name or ends_in_sigmoid(self.network, images):
            self._check_sigmoid(name)
        elif (
            outputs.shape[1] > 1
            and away < _TOLERANCE.get(outputs.dtype, 1e-4)
            and self._are_distributions(images, outputs)
        ):
            kind = "" if remove and self._skip_softmax(images, "softmax") else "probabilities"
        elif outputs.numel() >= _EVIDENCE and low > 0 and high < 1 and away > 1e-2:
            kind = "probabilities of independent labels"
        if kind and self.requested != "logit":
            warn_caller(
                f"The outputs of the model look like {kind}, and output={self.output!r} takes them for logits. Return "
                "the logits, or pass output='logit' to use the outputs unchanged."
            )

    def _skip_softmax(self, images: Tensor, activation: Activation) -> str:
        name = skip_last_layer(self.network, images, activation)
        if name:
            warn_caller(
                f"The network ends in a {activation} ({name!r}), where logits are expected; its inputs are taken as "
                f"the logits. Pass the network without the {activation} to avoid this warning."
            )
        return name

    def _are_distributions(self, images: Tensor, outputs: Tensor) -> bool:
        """Return whether outputs that sum to 1 are probabilities: the logits of one image may be 0 and 1 by chance."""
        if len(outputs) == 1 and len(images) > 1 and outputs.max() == 1:
            with torch.no_grad():
                outputs = self.select(self.network(images[1:2].clone()), 1)
        elif len(outputs) == 1 and outputs.max() == 1:
            return False
        away = (outputs.double().sum(1) - 1).abs().max()
        return bool(outputs.min() >= 0) and bool(away < _TOLERANCE.get(outputs.dtype, 1e-4))

    def _check_sigmoid(self, layer: str) -> None:
        if self.requested not in ("sigmoid", "logit"):
            raise ValueError(
                f"The network ends in a sigmoid{f' ({layer!r})' if layer else ''}, got output={self.requested!r}. "
                f"Its outputs are probabilities of "
                "independent labels, and a softmax of them would mean nothing. Pass output='sigmoid' to explain the "
                "probability of the target label, or output='logit' for its logit."
            )
        if not layer and self.from_logits:
            raise UnsupportedModelError(
                "The network ends in a sigmoid that is called as a function, and the explainer begins at the logits. "
                "Return the logits, or make the sigmoid the last layer, torch.nn.Sigmoid()."
            )
        self.outputs_are_probabilities = not layer
        if layer and self.output == "logit":
            warn_caller(
                f"The network ends in a sigmoid ({layer!r}); its inputs are taken as the logits. Pass output='sigmoid' "
                "to explain the probability of a label, or the network without the sigmoid to avoid this warning."
            )


def explains_function(model: nn.Module) -> bool:
    """Return whether a function of the network's outputs is explained instead of a class.

    Args:
        model: An :class:`ExplainedOutput` or a network.
    """
    return isinstance(model, ExplainedOutput) and callable(model.output)


def target_logits(model: nn.Module, returned: object, targets: Tensor) -> Tensor:
    """Return the logits of the targets, where methods begin that propagate through the layers and see no head.

    Args:
        model: An :class:`ExplainedOutput` or a network.
        returned: What the network returned for N images.
        targets: ``[N]``.

    Returns:
        ``[N]``: the logits, -z for class 0 of a network with one output under ``"sigmoid"``, or the values of the
        function that is explained.
    """
    if not isinstance(model, ExplainedOutput):
        return check_logits(returned, len(targets)).gather(1, targets[:, None])[:, 0]
    logits = model.select(returned, len(targets))
    return (two_sided(logits) if model.output == "sigmoid" else logits).gather(1, targets[:, None])[:, 0]


def network_of(model: nn.Module) -> nn.Module:
    """Return the network without the head that computes the explained output; layer names refer to it.

    Args:
        model: An :class:`ExplainedOutput`, a module compiled by ``torch.compile``, an ``nn.DataParallel``, or any other
            module, which is returned unchanged.

    Returns:
        The network, not compiled and on one device.
    """
    network = model.network if isinstance(model, ExplainedOutput) else model
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
        network = network.module
    original = getattr(network, "_orig_mod", None)
    return original if isinstance(original, nn.Module) else network


def run_layers(model: nn.Module, images: Tensor) -> list[LayerRun]:
    """Return every call of a layer or container for the first image, in the order in which the calls finish."""
    with record_layer_runs(network_of(model).named_modules()) as runs, torch.no_grad():
        model(images[:1])
    return runs


class _ExactSoftmax(torch.autograd.Function):
    """Compute the softmax over dimension 1 with a gradient that does not vanish by rounding when it saturates.

    Args:
        logits: ``[N, K]``.

    Returns:
        ``[N, K]``, with the values of ``torch.softmax``. It can be differentiated twice.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[100.0, 0.0]], dtype=torch.float64, requires_grad=True)
        >>> torch.autograd.grad(exact_softmax(logits)[0, 0], logits)[0].tolist()
        [[3.720075976020836e-44, -3.720075976020836e-44]]
        >>> torch.autograd.grad(logits.softmax(1)[0, 0], logits)[0].tolist()
        [[0.0, -3.720075976020836e-44]]
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        probabilities = logits.softmax(1)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        p: Tensor = ctx.saved_tensors[0]
        largest = p.argmax(1, keepdim=True)
        # The gradient depends only on differences of g. If they are taken relative to the most likely class, whose p
        # may round to 1, every remaining term is a product of small numbers and nothing cancels. O(N K).
        relative = upstream - upstream.gather(1, largest)
        return p * (relative - (p * relative).sum(1, keepdim=True))


exact_softmax: Callable[[Tensor], Tensor] = _ExactSoftmax.apply


def correct_gradient_of_single_image(outputs: Tensor) -> None:
    """Make the gradients that enter the batch normalizations before these outputs contiguous.

    On a CPU, torch (2.14.1) computes a wrong gradient of a batch normalization in evaluation mode for one image if the
    incoming gradient has the strides of ``flatten(2).transpose(1, 2)``, as in networks whose convolutions end in tokens
    that are averaged or normalized (LeViT, XCiT). Several images have other strides.

    Args:
        outputs: Outputs of a network for one image; nothing happens without a gradient.
    """
    todo, seen = [outputs.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [before for before, _ in node.next_functions]
            if node.name().startswith("NativeBatchNormBackward"):
                node.register_prehook(lambda gradients: tuple(g if g is None else g.contiguous() for g in gradients))


class _ExactSigmoid(torch.autograd.Function):
    """Compute the sigmoid with a gradient that does not vanish by rounding when it saturates.

    Args:
        logits: Any shape.

    Returns:
        The same shape, with the values of ``torch.sigmoid``. It can be differentiated twice.

    Example:
        >>> import torch
        >>> z = torch.tensor([100.0], dtype=torch.float64, requires_grad=True)
        >>> gradients = [torch.autograd.grad(p, z)[0].item() for p in (exact_sigmoid(z), z.sigmoid())]
        >>> [f"{gradient:.3g}" for gradient in gradients]
        ['3.72e-44', '0']
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return logits.sigmoid()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        z: Tensor = ctx.saved_tensors[0]
        # p (1 - p), where 1 - p would round to zero for a large z.
        return upstream * z.sigmoid() * (-z).sigmoid()


exact_sigmoid: Callable[[Tensor], Tensor] = _ExactSigmoid.apply


def class_margins(logits: Tensor) -> Tensor:
    """Compute each logit minus the log-sum-exp of the others, the log-odds of its softmax probability.

    Args:
        logits: ``[N, K]``, K at least two.

    Returns:
        ``[N, K]``; for two classes, the difference of the logits with either sign.
    """
    # log-odds = z_k - logsumexp(z) - log(1 - p_k). Only the most likely class can have p_k near 1, where the last term
    # would cancel: for that class the log-sum-exp of the others is computed directly. O(N K).
    largest = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.argmax(1, keepdim=True), value=True)
    others = logits.masked_fill(largest, -torch.inf).logsumexp(1, keepdim=True)
    p = exact_softmax(logits).masked_fill(largest, 0.0)
    return logits - torch.where(largest, others, logits.logsumexp(1, keepdim=True) + torch.log1p(-p))


def target_margins(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the logits of the targets minus the log-sum-exp of the other logits.

    Args:
        logits: ``[N, K]``, K at least two.
        targets: ``[N]``.

    Returns:
        ``[N]``: the columns of :func:`class_margins`, up to rounding.
    """
    others = logits.scatter(1, targets[:, None], -torch.inf)
    return logits.gather(1, targets[:, None])[:, 0] - others.logsumexp(1)
