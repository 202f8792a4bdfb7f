"""Classification of the operations that the backward rules treat."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn import functional


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Functions, by the name under which torch reports a call from a module or elsewhere.
LINEAR = _names("linear conv1d conv2d conv3d")
#: Functions that only rearrange or select values, or do nothing in evaluation mode. They keep their gradient.
REARRANGING = _names("""
    flatten unflatten reshape reshape_as view view_as permute transpose movedim moveaxis swapaxes swapdims t __getitem__
    expand expand_as squeeze squeeze_ unsqueeze unsqueeze_ contiguous clone alias narrow select index_select gather
    chunk split tensor_split unbind cat concat concatenate stack hstack vstack flip roll
    pixel_shuffle pixel_unshuffle channel_shuffle
    pad constant_pad_nd to type type_as float double half bfloat16 cpu cuda requires_grad_ __get__
    dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout amax
    max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool1d_with_indices
    adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
""")
_ACTIVATIONS = _names("""
    relu relu_ relu6 leaky_relu leaky_relu_ elu elu_ celu celu_ selu selu_ gelu silu mish softplus softsign
    tanh tanh_ sigmoid sigmoid_ hardtanh hardtanh_ hardswish hardsigmoid prelu rrelu rrelu_ logsigmoid
    threshold threshold_ _threshold hardshrink softshrink tanhshrink
""")
#: Elementwise and nonlinear if only one argument depends on the image: bounds that are constants.
_BOUNDS = _names("""
    clamp clamp_ clip clip_ clamp_min clamp_min_ clamp_max clamp_max_ maximum minimum max min fmax fmin
""")
#: x times a gate from 0 to 1 that increases with x: smooth variants of ReLU.
_SMOOTH = _names("gelu silu mish hardswish")
# max(x, 0), possibly with an upper bound: a neuron is either inactive or linear.
_RECTIFIERS = _names("relu relu_ relu6")
# Weighted sums with positive weights.
_AVERAGES = _names("""
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean sum
""")
#: Normalizations by the statistics of the image itself.
OWN_STATISTICS = _names("layer_norm group_norm instance_norm")
#: Operations that Guided Backprop passes with their gradient, besides those that have a kind: no activation is among
#: them. Powers and roots are parts of normalizations that are written out.
GRADIENT_PASSING = (
    LINEAR
    | REARRANGING
    | OWN_STATISTICS
    | _names("""
    batch_norm rms_norm normalize local_response_norm conv_transpose1d conv_transpose2d conv_transpose3d
    interpolate grid_sample fold unfold logsumexp cumsum
    matmul __matmul__ __rmatmul__ bmm mm addmm baddbmm einsum bilinear
    mul mul_ multiply __mul__ __rmul__ __imul__ div div_ true_divide __truediv__ __rtruediv__ __itruediv__
    sub sub_ subtract __sub__ __rsub__ __isub__ rsub addcmul lerp
    pow pow_ __pow__ square sqrt rsqrt reciprocal var std var_mean std_mean norm linalg_norm linalg_vector_norm
""")
)
_ADDITIONS = _names("add add_ __add__ __radd__ __iadd__")
# With a constant operand these are elementwise: one input for each output.
_AFFINE = _ADDITIONS | _names("""
    sub sub_ rsub __sub__ __rsub__ __isub__ mul mul_ __mul__ __rmul__ __imul__
    div div_ true_divide __truediv__ __itruediv__ neg __neg__
""")

#: Operators that overwrite a tensor.
_ASSIGNMENTS = _names("__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __ipow__ __imod__ __setitem__")
#: Activations that a user's autograd function is compared with: equal values, same backward rule.
_RECOGNIZED: tuple[Callable[..., Tensor], ...] = (
    *(functional.relu, functional.relu6, functional.silu, functional.mish, functional.hardswish, functional.gelu),
    *(functional.hardsigmoid, functional.elu, functional.selu, functional.softplus, torch.tanh, torch.sigmoid),
)

OperationKind: TypeAlias = Literal["linear", "sum", "activation", "affine", "group"]


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of the forward pass that a backward rule treats.

    Attributes:
        kind: ``"linear"``: a linear layer or convolution. ``"sum"``: a weighted sum with positive weights (average
            pooling, linear interpolation, the addition of branches). ``"activation"``: elementwise and nonlinear.
            ``"affine"``: elementwise, with constants. ``"group"``: the log-sum-exp of logits (merged classes).
        name: The name of the layer in ``model.named_modules()``; ``"#2"`` is appended for its second call.
        function: ``function(*inputs, weight)``, without bias; ``weight`` is ``None`` unless the kind is ``"linear"``.
        called: Name of the function that the network called.
        where: Description of the layer, for error messages.
        weight: ``[out, in, ...]``, including a batch normalization that follows.
        bias: Broadcasts with the output.
        is_input: Whether it is the first linear operation, whose input is the image.
        rectifies: Whether it is ReLU, ReLU6 or similar: max(x, 0), possibly with an upper bound.
        smooth: Whether it is GELU, SiLU, Mish or Hardswish: x times a gate that increases with x.
        is_product: Whether it is a product with a constant matrix, whose bias is added by another operation.
    """

    kind: OperationKind
    name: str
    function: Callable[..., Tensor]
    called: str
    where: str
    weight: Tensor | None = None
    bias: Tensor | None = None
    is_input: bool = False
    rectifies: bool = False
    smooth: bool = False
    is_product: bool = False

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the output of the forward pass."""
        output: Tensor = self.function(*inputs, self.weight)
        return output if self.bias is None else output + self.bias

    def pullback(self, weight: Tensor | None, signal: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Apply the transpose of the operation with that weight to ``signal``; returns one tensor per input."""
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in inputs]
            return torch.autograd.grad(self.function(*leaves, weight), leaves, signal)


def operation_kind(called: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperationKind | None:
    """Return the kind of operation of a call; ``None`` if it is unknown."""
    if called in _ACTIVATIONS:
        return "activation"
    if called in _AVERAGES or (
        called == "interpolate" and kwargs.get("mode", args[3] if len(args) > 3 else "nearest") != "bicubic"
    ):
        return "sum"
    operands = [isinstance(x, Tensor) and x.requires_grad for x in (*args, *kwargs.values())]
    if called in _BOUNDS and sum(operands) == 1 and _bounds(called, args, kwargs):
        return "activation"
    if called not in _AFFINE:
        return None
    if sum(operands) == 1 and ("div" not in called or operands[0]):
        return "affine"
    return "sum" if called in _ADDITIONS and kwargs.get("alpha", 1) > 0 else None


def is_rectifier(called: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call is max(x, 0), possibly with an upper bound; ``nn.ReLU6`` calls ``hardtanh`` from 0 to 6."""
    plain = called.strip("_")
    if plain == "hardtanh":
        return bool(kwargs.get("min_val", args[1] if len(args) > 1 else -1.0) == 0)
    if plain == "threshold":
        given = dict(zip(("input", "threshold", "value"), args, strict=False)) | kwargs
        return bool(given["threshold"] == given["value"] == 0)
    if plain in ("clamp", "clip", "clamp_min", "maximum", "max", "fmax"):
        lower = next(iter(_bounds(called, args, kwargs)), None)
        return lower is not None and bool((torch.as_tensor(lower) == 0).all())
    return called in _RECTIFIERS


def _bounds(called: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the constant bounds of a call such as ``clamp`` or ``maximum``, the lower one first (None if missing)."""
    names = ("input", "min", "max") if called.startswith("cl") else ("input", "other")
    given = dict(zip(names, args, strict=False)) | kwargs
    if called.startswith("cl"):
        bounds = [given.get("min"), given.get("max")]
        return bounds[::-1] if "max" in called else bounds
    # torch.max(x, 1) reduces an axis.
    operands = [x for x in (given.get("input"), given.get("other")) if isinstance(x, Tensor)]
    return [x for x in operands if not x.requires_grad] if len(operands) == 2 else []


def is_smooth_rectifier(called: str) -> bool:
    """Return whether a call is x times a gate that increases with x."""
    return called in _SMOOTH


def dense_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``linear`` for a product with a matrix; the addition of a constant that follows is its bias."""
    return functional.linear(x, weight, bias)


def as_linear(
    called: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Tensor, ...], Callable[[Tensor], Tensor]] | None:
    """Return a product with a constant matrix as arguments of :func:`dense_product`, and what is done to its result.

    ``x @ W`` and ``torch.addmm(b, x, W)`` are dense layers; in ``W @ x`` the layer acts on the last axis but one.
    """
    if called not in ("matmul", "mm", "__matmul__", "__rmatmul__", "addmm") or set(kwargs) & {"alpha", "beta"}:
        return None
    *bias, left, right = (*args, *kwargs.values()) if called != "__rmatmul__" else args[::-1]
    if left.requires_grad == right.requires_grad or any(x.requires_grad for x in bias):
        return None
    x, weight = (left, right) if left.requires_grad else (right, left)
    if weight.ndim == 1 and x is left:
        return (x, weight[None]), lambda y: y.squeeze(-1)
    if weight.ndim != 2 or (x is right and (x.ndim < 2 or bias)):
        return None
    if x is right:
        return (x.mT, weight), lambda y: y.mT
    biases = [as_bias(value, weight.T) for value in bias]
    return None if None in biases else ((x, weight.T, *cast(list[Tensor], biases)), lambda y: y)


def as_bias(value: Tensor, weight: Tensor) -> Tensor | None:
    """Return a constant as the bias of a dense layer ``[out, in]``; None if it is not one number per output."""
    is_bias = weight.ndim == 2 and value.numel() == len(weight) == (*value.shape, 0)[value.ndim - 1]
    return value.reshape(-1) if is_bias else None


def added_constant(called: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Split the sum of a tensor and a constant tensor into both; None for another call."""
    if called not in _ADDITIONS or len(args) != 2 or kwargs or not all(isinstance(x, Tensor) for x in args):
        return None
    x, constant = args if args[0].requires_grad else args[::-1]
    return None if constant.requires_grad else (x, constant)


def is_attention_softmax(called: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call is the softmax of an attention: over the last axis, with three or more dimensions."""
    if called != "softmax" or not args:
        return False
    return args[0].ndim >= 3 and kwargs.get("dim", args[1] if len(args) > 1 else None) in (-1, args[0].ndim - 1)


def function_name(func: Callable[..., Any]) -> str:
    """Return the name under which torch reports a call."""
    return getattr(func, "__name__", str(func))


def tensor_version(x: Tensor) -> int:
    """Return how often a tensor was overwritten; 0 for tensors of inference mode, which do not count it."""
    return 0 if x.is_inference() else x._version


def overwritten_tensor(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the tensor that a call overwrites (``relu_``, ``x += y``, ``inplace=True``); ``None`` if there is none."""
    if isinstance(kwargs.get("out"), Tensor):
        return cast(Tensor, kwargs["out"])
    called = function_name(func)
    writes = called in _ASSIGNMENTS or (called.endswith("_") and not called.endswith("__"))
    if not writes and (place := _inplace_position(func)) is not None:
        writes = bool(kwargs.get("inplace", args[place] if len(args) > place else False))
    first = next(iter((*args, *kwargs.values())), None)
    return first if writes and isinstance(first, Tensor) else None


@functools.lru_cache(maxsize=1000)
def _inplace_position(func: Callable[..., Any]) -> int | None:
    """Return the position of the argument ``inplace``; ``None`` if the function has none."""
    try:
        names = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):  # functions that are written in C++
        return None
    return names.index("inplace") if "inplace" in names else None


def recognize_activation(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Tensor] | None:
    """Return torch's activation that has the values of a function of one tensor; ``None`` if there is none."""
    if len(args) != 1 or kwargs or not isinstance(args[0], Tensor):
        return None
    points = torch.linspace(-8, 8, 129, dtype=args[0].dtype, device=args[0].device)
    given = points.clone()
    with torch.no_grad():
        try:
            values = func(given)
        except (RuntimeError, TypeError, ValueError, IndexError):  # it needs images
            return None
        if not isinstance(values, Tensor) or values.shape != points.shape or not torch.equal(given, points):
            return None
        for activation in _RECOGNIZED:
            if torch.allclose(values, activation(points), rtol=1e-5, atol=1e-6):
                return activation
    return None


def out_of_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor]:
    """Return the call as a function of the tensors that require a gradient, in order, without modifying any tensor."""
    target = overwritten_tensor(func, args, kwargs)

    def function(*inputs: Tensor | None) -> Tensor:
        fresh = (x.clone() for x in inputs if x is not None)  # the weight, which is the last, is None

        def fill(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return next(fresh) if x.requires_grad else x.clone() if x is target else x

        result: Tensor = func(*[fill(x) for x in args], **{key: fill(x) for key, x in kwargs.items()})
        return result

    return function


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and dicts, and in the attributes of an object."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        yield from tensors_in(list(values.values()))
    else:
        yield from (value for value in getattr(values, "__dict__", {}).values() if isinstance(value, Tensor))
