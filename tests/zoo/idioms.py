"""Small networks with the idioms of public code, and the same functions written plainly.

A network is a convolution and a batch normalization, then the part with the idiom, then a convolutional head. The plain
form has the same weights, since both are built from the same seed.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

#: What must come out. ``right``: every explainer that explains the plain form gives the same map. ``refused``: every
#: explainer that calls the network refuses it. ``no gradient``: explainers without gradients are right, the others
#: refuse. ``either``: right or refused, but explainers without gradients are right.
Expected = Literal["right", "refused", "no gradient", "either", "right or refused"]


@dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    Attributes:
        build: Returns the network, in evaluation mode.
        plain: Returns networks that compute the same function without the idiom; a map must be that of one of them.
        expected: See :data:`Expected`.
        shape: Shape of an image.
        relu: Whether the network is piecewise linear by ReLUs, so that LRP-0 equals Input × Gradient.
        targets: The explained classes.
        settings: Further arguments of ``explain``.
        dtype: Data type of the images.
        defined: Whether its gradients are those of the function, so that definitions can be checked on the network.
    """

    build: Callable[[], nn.Module]
    plain: tuple[Callable[[], nn.Module], ...] = ()
    expected: Expected = "right"
    shape: tuple[int, int, int] = (3, 12, 12)
    relu: bool = False
    targets: tuple[int, int] = (1, 3)
    settings: tuple[tuple[str, Any], ...] = ()
    dtype: torch.dtype = torch.float64
    defined: bool = True


class Apply(nn.Module):
    """A function of the feature maps."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def seeded(build, *, seed=0):
    """Build a network in float64 and evaluation mode; statistics of batch normalizations are drawn as well."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d) and module.track_running_stats:
                nn.init.uniform_(module.running_mean, -0.3, 0.3)
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 2)
                nn.init.uniform_(module.bias, -0.3, 0.3)
    return network.double().eval()


def head(channels=8):
    return [nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]


def around(part, channels=8):
    """Return a builder of the network with a part in the middle; ``part()`` makes it from the seed."""
    return lambda: seeded(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), part(), *head(channels))
    )


def whole(kind, *arguments, **keywords):
    return lambda: seeded(lambda: kind(*arguments, **keywords))


def function(idiom, *plain, channels=8, **traits):
    """A function of the feature maps instead of a module."""
    return Entry(
        around(lambda: Apply(idiom), channels), tuple(around(lambda p=p: Apply(p), channels) for p in plain), **traits
    )


def part(idiom, *plain, channels=8, **traits):
    return Entry(around(idiom, channels), tuple(around(p, channels) for p in plain), **traits)


# --- written in place -------------------------------------------------------------------------------------------------


class PreActivation(nn.Module):
    """A residual unit that begins with a ReLU in place: the skip carries the rectified values."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=how == "module")

    def forward(self, x):
        if self.how == "plain":
            x = out = F.relu(x)
        elif self.how == "module":
            out = self.relu(x)
        elif self.how == "function":
            out = F.relu(x, inplace=True)
        else:
            out = x.relu_()
        return self.second(F.relu(self.first(out))) + x


class Residual(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        out = self.norm(self.conv(x))
        if self.how == "+=":
            out += x
        elif self.how == "add_":
            out.add_(x)
        elif self.how == "torch.add":
            out = torch.add(out, x, alpha=1)
        else:
            out = out + x
        if self.how == "add_":
            out.relu_()
            return out
        return F.relu(out)


def relu_statement(x):
    F.relu(x, inplace=True)
    return x


def relu_method_statement(x):
    x.relu_()
    return x


def clamp_statement(x):
    x.clamp_(min=0)
    return x


def mul_statement(x):
    x.mul_(0.5)
    x.add_(0.1)
    return F.relu(x)


def add_other_statement(x):
    y = x * 0.5
    x.add_(y)
    y.mul_(2.0)
    return F.relu(x + y)


def sub_statement(x):
    x.sub_(0.1).div_(0.7)
    return F.relu(x)


def sigmoid_gate_statement(x):
    gate = x.mean((2, 3), keepdim=True)
    gate.sigmoid_()
    x.mul_(gate)
    return x


def masked_fill_statement(x):
    x.masked_fill_(x < 0, 0.0)
    return x


def index_statement(x):
    x[x < 0] = 0
    return x


def written_slice_relu(x):
    x[:, :4] = F.relu(x[:, :4])
    return x


def plain_slice_relu(x):
    return torch.cat([F.relu(x[:, :4]), x[:, 4:]], 1)


def view_written(x):
    flat = x.view(len(x), -1)
    flat.relu_()
    return x


def transposed_view_written(x):
    x.transpose(1, 2).relu_()
    return x


def half_written(x):
    x[:, :4].relu_()
    return x


def narrow_written(x):
    x.narrow(1, 0, 4).mul_(2.0)
    return F.relu(x)


def plain_narrow(x):
    return F.relu(torch.cat([x[:, :4] * 2.0, x[:, 4:]], 1))


def chunk_written(x):
    first, second = x.chunk(2, 1)
    first.relu_()
    return torch.cat([first, second], 1)


def chunk_copied_and_written(x):
    first, second = (half.contiguous() for half in x.chunk(2, 1))
    first = first.clone()
    first.relu_()
    return torch.cat([first, second], 1)


def out_argument(x):
    y = torch.empty_like(x)
    torch.clamp(x, min=0, out=y)
    return y


def stored_and_overwritten(x):
    """A list of feature maps, of which the last is overwritten afterwards."""
    stages = [x * 0.5, x * 2.0]
    stages[-1].relu_()
    return sum(stages)


def plain_stored(x):
    return x * 0.5 + F.relu(x * 2.0)


def copied_into_zeros(x):
    padded = torch.zeros(*x.shape[:2], x.shape[2] + 2, x.shape[3] + 2, dtype=x.dtype)
    padded[:, :, 1:-1, 1:-1] = x
    return F.relu(padded)


class PartialConvolution(nn.Module):
    """FasterNet's convolution of some channels."""

    def __init__(self, how):
        super().__init__()
        self.how, self.conv = how, nn.Conv2d(2, 2, 3, padding=1, bias=False)

    def forward(self, x):
        if self.how == "plain":
            return torch.cat([self.conv(x[:, :2]), x[:, 2:]], 1)
        if self.how == "clone":
            x = x.clone()
        x[:, :2] = self.conv(x[:, :2])
        return x


def shift_into_zeros(x):
    """Temporal shift."""
    out = torch.zeros_like(x)
    out[:, 0, 1:] = x[:, 0, :-1]
    out[:, 1, :-1] = x[:, 1, 1:]
    out[:, 2:] = x[:, 2:]
    return out


def plain_shift(x):
    zeros = torch.zeros_like(x[:, :1, :1])
    down, up = torch.cat([zeros, x[:, :1, :-1]], 2), torch.cat([x[:, 1:2, 1:], zeros], 2)
    return torch.cat([down, up, x[:, 2:]], 1)


class InputNormalization(nn.Module):
    """Normalize the image, in place or not, and classify it."""

    def __init__(self, how):
        super().__init__()
        self.how, self.body = how, nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *head())
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))

    def forward(self, x):
        if self.how == "in place":
            x.sub_(self.mean).div_(0.3)
        elif self.how == "channels":
            for channel in range(3):
                x[:, channel].sub_(self.mean[channel, 0, 0]).div_(0.3)
        else:
            x = (x - self.mean) / 0.3
        return self.body(x)


WRITTEN = {
    **{
        f"pre-activation by {how}": part(lambda how=how: PreActivation(how), lambda: PreActivation("plain"), relu=True)
        for how in ("module", "function", "method")
    },
    **{
        f"residual by {how}": part(lambda how=how: Residual(how), lambda: Residual("plain"), relu=True)
        for how in ("+=", "add_", "torch.add")
    },
    "F.relu in place, a statement": function(relu_statement, F.relu, relu=True),
    "relu_, a statement": function(relu_method_statement, F.relu, relu=True),
    "clamp_, a statement": function(clamp_statement, F.relu, expected="either"),
    "mul_ and add_, statements": function(mul_statement, lambda x: F.relu(x * 0.5 + 0.1)),
    "add_ of a tensor that changes": function(add_other_statement, lambda x: F.relu((x + x * 0.5) + (x * 0.5) * 2.0)),
    "sub_ and div_, statements": function(sub_statement, lambda x: F.relu((x - 0.1) / 0.7)),
    "gate in place": function(sigmoid_gate_statement, lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
    "masked_fill_, a statement": function(masked_fill_statement, F.relu, expected="either"),
    "x[x < 0] = 0": function(index_statement, F.relu, expected="either"),
    "written slice of relu": function(written_slice_relu, plain_slice_relu, expected="either"),
    "relu_ of a slice": function(half_written, plain_slice_relu, expected="either"),
    "relu_ of a flat view": function(view_written, F.relu, expected="either"),
    "relu_ of a transposed view": function(transposed_view_written, F.relu, expected="either"),
    "mul_ of a narrow view": function(narrow_written, plain_narrow, expected="either"),
    "chunk in place": function(chunk_written, plain_slice_relu, expected="right or refused"),
    "chunk copied, in place": function(chunk_copied_and_written, plain_slice_relu),
    "out=": function(out_argument, F.relu, expected="either"),
    "stored, then overwritten": function(stored_and_overwritten, plain_stored),
    "copied into zeros": function(copied_into_zeros, lambda x: F.relu(F.pad(x, (1, 1, 1, 1))), expected="either"),
    "partial convolution with clone": part(
        lambda: PartialConvolution("clone"), lambda: PartialConvolution("plain"), expected="either"
    ),
    "partial convolution in place": part(
        lambda: PartialConvolution("in place"), lambda: PartialConvolution("plain"), expected="either"
    ),
    "shift into zeros": function(shift_into_zeros, plain_shift, expected="either"),
    "input normalized in place": Entry(whole(InputNormalization, "in place"), (whole(InputNormalization, "plain"),)),
    "channels of the input normalized in place": Entry(
        whole(InputNormalization, "channels"), (whole(InputNormalization, "plain"),), expected="either"
    ),
}


# --- activations in other words ---------------------------------------------------------------------------------------


class OwnReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0] > 0)


class OwnSwish(torch.autograd.Function):
    """The memory-efficient swish of several packages."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        sigmoid = torch.sigmoid(x)
        return gradient * sigmoid * (1 + x * (1 - sigmoid))


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return OwnSwish.apply(x)


class BoundFunction(nn.Module):
    """Holds the function as an attribute."""

    def __init__(self, function):
        super().__init__()
        self.activation = function.apply

    def forward(self, x):
        return self.activation(x)


class RectifiedInBackward(torch.autograd.Function):
    """A guided ReLU left in the network: its gradient is not the derivative of the function."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(min=0) * (ctx.saved_tensors[0] > 0)


class ReverseGradient(torch.autograd.Function):
    """The layer of domain-adversarial training."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


@torch.jit.script
def scripted_swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


@torch.jit.script
def scripted_relu(x: Tensor) -> Tensor:
    return torch.relu(x)


@torch.library.custom_op("xaibench_zoo::rectify", mutates_args=())
def custom_rectify(x: Tensor) -> Tensor:
    return x.clamp(min=0)


custom_rectify.register_autograd(
    lambda ctx, gradient: gradient * (ctx.saved_tensors[0] > 0),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def squareplus(x):
    return 0.5 * (x + torch.sqrt(x * x + 4.0))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def maxout(x):
    n, c, h, w = x.shape
    return x.view(n, c // 2, 2, h, w).max(2).values


class Swishes(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def hidden(idiom, *plain, **traits):
    """An activation that torch functions do not show, or show as something else."""
    return function(idiom, *plain, expected="either", **traits)


ACTIVATIONS = {
    "clamp(min=0)": hidden(lambda x: x.clamp(min=0), F.relu, relu=True),
    "clip(0)": hidden(lambda x: x.clip(0), F.relu, relu=True),
    "clamp_min(0)": hidden(lambda x: torch.clamp_min(x, 0), F.relu, relu=True),
    "clamp(0, 6)": hidden(lambda x: x.clamp(0, 6), F.relu6, relu=True),
    "hardtanh(0, 1)": hidden(lambda x: F.hardtanh(x, 0.0, 1.0)),
    "hardtanh(0, 6)": hidden(lambda x: F.hardtanh(x, 0.0, 6.0), F.relu6),
    "maximum(x, 0)": hidden(lambda x: torch.maximum(x, torch.zeros(())), F.relu, relu=True),
    "max(x, zeros_like)": hidden(lambda x: torch.max(x, torch.zeros_like(x)), F.relu, relu=True),
    "where(x > 0, x, 0)": hidden(lambda x: torch.where(x > 0, x, 0), F.relu, relu=True),
    "where(x > 0, x, 0.1 x)": hidden(lambda x: torch.where(x > 0, x, 0.1 * x), lambda x: F.leaky_relu(x, 0.1)),
    "x * (x > 0)": hidden(lambda x: x * (x > 0), F.relu, relu=True),
    "x * (x > 0).float()": hidden(lambda x: x * (x > 0).to(x.dtype), F.relu, relu=True),
    "(x + |x|) / 2": hidden(lambda x: (x + x.abs()) / 2, F.relu),
    "threshold": hidden(lambda x: F.threshold(x, 0.0, 0.0), F.relu, relu=True),
    "-min(-x, 0)": hidden(lambda x: -torch.minimum(-x, torch.zeros(())), F.relu),
    "masked_fill": hidden(lambda x: x.masked_fill(x < 0, 0.0), F.relu),
    "nan_to_num": hidden(lambda x: torch.nan_to_num(F.relu(x)), F.relu),
    "own function of relu": part(lambda: Apply(lambda x: OwnReLU.apply(x)), nn.ReLU, expected="either", relu=True),
    "own function of relu, bound": part(lambda: BoundFunction(OwnReLU), nn.ReLU, expected="either", relu=True),
    "own function of swish": part(MemoryEfficientSwish, nn.SiLU, Swishes, expected="either"),
    "own function of swish, bound": part(lambda: BoundFunction(OwnSwish), nn.SiLU, Swishes, expected="either"),
    "own function with another gradient": part(lambda: BoundFunction(RectifiedInBackward), expected="no gradient"),
    "gradient reversal": part(lambda: BoundFunction(ReverseGradient), nn.Identity, expected="no gradient"),
    "scripted swish": part(lambda: Apply(scripted_swish), nn.SiLU, Swishes, expected="either"),
    "scripted relu": part(lambda: Apply(scripted_relu), nn.ReLU, expected="either", relu=True),
    "scripted module": part(lambda: torch.jit.script(nn.ReLU()), nn.ReLU, expected="either", relu=True),
    "custom operator": part(lambda: Apply(custom_rectify), nn.ReLU, expected="either", relu=True),
    "swish as a product": hidden(lambda x: x * torch.sigmoid(x)),
    "swish in place": hidden(lambda x: x.mul_(x.sigmoid()), lambda x: x * x.sigmoid()),
    "hard swish by relu6": hidden(lambda x: x * F.relu6(x + 3) / 6),
    "mish by hand": hidden(lambda x: x * torch.tanh(F.softplus(x))),
    "gelu by tanh": hidden(gelu_tanh),
    "gelu by erf": hidden(lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))),
    "softplus by hand": hidden(lambda x: torch.log1p(torch.exp(x))),
    "squareplus": hidden(squareplus),
    "square": hidden(lambda x: x * x, lambda x: x * x),
    "power": hidden(lambda x: x**2),
    "square root": hidden(lambda x: torch.sqrt(F.relu(x) + 1e-3)),
    "sine": hidden(torch.sin),
    "exponential": hidden(lambda x: torch.exp(-x)),
    "reciprocal": hidden(lambda x: 1 / (1 + x.abs())),
    "max-out by view": hidden(maxout, channels=4),
    "max-out by max": hidden(lambda x: torch.max(x[:, :4], x[:, 4:]), channels=4),
    "GLU": hidden(lambda x: F.glu(x, 1), channels=4),
    "GLU by hand": hidden(lambda x: x[:, :4] * torch.sigmoid(x[:, 4:]), channels=4),
    "CReLU": hidden(lambda x: F.relu(torch.cat([x, -x], 1)), channels=16),
    **{
        kind.__name__: part(kind, expected="either")
        for kind in (
            *(nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Hardswish),
            *(nn.Tanh, nn.Softsign, nn.Sigmoid, nn.Hardsigmoid, nn.RReLU, nn.Softshrink, nn.PReLU, nn.LogSigmoid),
        )
    },
}


#: Activations that a trace must recognize or refuse.
HIDDEN = [name for name in ACTIVATIONS if name.startswith(("own", "scripted", "gradient", "clamp(min", "x *"))]


# --- weights that are computed, tied, lazy, or of another kind --------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())

    def forward(self, x):
        if self.how == "plain":
            return self.body(x)
        if self.how == "sequential":
            return checkpoint_sequential(self.body, 2, x, use_reentrant=False)
        return checkpoint(self.body, x, use_reentrant=self.how == "reentrant")


class Tied(nn.Module):
    """One convolution that is called twice, under two names."""

    def __init__(self, how):
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = self.first if how == "tied" else copy.deepcopy(self.first)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))))


class BareParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(8, 8, 3, 3) / 8) for _ in range(2))

    def forward(self, x):
        for weight in self.weights:
            x = F.relu(F.conv2d(x, weight, padding=1))
        return x


class StandardizedConv(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5), self.bias)


def frozen_weights(module):
    """Replace a reparameterized layer by a convolution with the same weight."""
    with torch.random.fork_rng(devices=[]):
        plain = nn.Conv2d(8, 8, 3, padding=1)
    plain.weight.data, plain.bias.data = module.weight.detach().clone(), module.bias.detach().clone()
    return plain


def reparameterized(change):
    def idiom():
        return nn.Sequential(change(nn.Conv2d(8, 8, 3, padding=1)), nn.ReLU())

    def plain():
        network = idiom().eval()
        network(torch.zeros(1, 8, 4, 4))
        return nn.Sequential(frozen_weights(network[0]), nn.ReLU())

    return part(idiom, plain, relu=True)


def pruned(layer):
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", amount=0.5)


def conv_part():
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())


def basic():
    return around(conv_part)()


def in_inference_mode():
    with torch.inference_mode():
        return basic()


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = basic()

    @torch.inference_mode()
    def forward(self, x):
        return self.network(x)


class WithoutGradient(Decorated):
    @torch.no_grad()
    def forward(self, x):
        return self.network(x)


def exported():
    return torch.export.export(basic(), (torch.zeros(2, 3, 12, 12).double(),), dynamic_shapes=({0: batch()},)).module()


def batch():
    return torch.export.Dim("batch", min=1, max=4096)


def of_dtype(dtype):
    """Weights of another type, explained in float64."""

    def network():
        rounded = basic().to(dtype)
        rounded.explain_dtype = torch.float64
        return rounded

    return Entry(network, (lambda: basic().to(dtype).double(),))


class MixedPrecision(nn.Module):
    """A head in double precision behind a body in single precision."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.body(x).to(self.last.weight.dtype))


class AutocastInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = basic().float()

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.network(x).float()


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.LazyConv2d(8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(4)
        )

    def forward(self, x):
        return self.network(x)


def hooked():
    network = basic()
    network[0].register_forward_hook(lambda module, inputs, output: output * 0.5)
    return network


def plain_hooked():
    network = basic()
    network.insert(1, Apply(lambda x: x * 0.5))
    return network


class Wrapping(nn.Module):
    def __init__(self, network, call=lambda network, x: network(x)):
        super().__init__()
        self.network, self.call = network, call

    def forward(self, x):
        return self.call(self.network, x)


def averaged():
    from torch.optim.swa_utils import AveragedModel

    return AveragedModel(basic())


def functional_call():
    network = basic()
    parameters = {name: value.detach().clone() for name, value in network.named_parameters()}
    return Wrapping(network, lambda network, x: torch.func.functional_call(network, parameters, (x,)))


def quantized():
    network = basic().float()
    return torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, dtype=torch.qint8)


WEIGHTS = {
    "weight norm, old": reparameterized(torch.nn.utils.weight_norm),
    "weight norm, new": reparameterized(torch.nn.utils.parametrizations.weight_norm),
    "spectral norm, old": reparameterized(torch.nn.utils.spectral_norm),
    "spectral norm, new": reparameterized(torch.nn.utils.parametrizations.spectral_norm),
    "orthogonal": reparameterized(torch.nn.utils.parametrizations.orthogonal),
    "pruned": reparameterized(pruned),
    "standardized weights": part(lambda: nn.Sequential(StandardizedConv(8, 8, 3, padding=1), nn.ReLU()), relu=True),
    **{
        f"checkpoint, {how}": part(lambda how=how: Checkpointed(how), lambda: Checkpointed("plain"), relu=True)
        for how in ("reentrant", "not reentrant", "sequential")
    },
    "tied": part(lambda: Tied("tied"), lambda: Tied("plain"), relu=True),
    "bare parameters": part(BareParameters, relu=True),
    "weights of inference mode": Entry(in_inference_mode, (basic,), relu=True),
    "forward in inference mode": Entry(lambda: Decorated().eval(), (basic,), expected="no gradient"),
    "forward without gradient": Entry(lambda: WithoutGradient().eval(), (basic,), expected="no gradient"),
    "exported": Entry(exported, (basic,), expected="either"),
    "compiled": Entry(lambda: torch.compile(basic(), backend="eager"), (basic,), relu=True),
    "compiled inside": Entry(
        lambda: Wrapping(torch.compile(basic(), backend="eager")).eval(), (lambda: Wrapping(basic()),), relu=True
    ),
    "scripted": Entry(lambda: torch.jit.script(basic()), (basic,), expected="either"),
    "traced": Entry(lambda: torch.jit.trace(basic(), torch.zeros(2, 3, 12, 12).double()), (basic,), expected="either"),
    "symbolically traced": Entry(lambda: torch.fx.symbolic_trace(basic()), (basic,)),
    "functional call": Entry(functional_call, (lambda: Wrapping(basic()),)),
    "average of weights": Entry(averaged, (lambda: Wrapping(basic()),)),
    "DataParallel": Entry(lambda: nn.DataParallel(basic()), (lambda: Wrapping(basic()),), relu=True),
    "channels last": Entry(lambda: basic().to(memory_format=torch.channels_last), (basic,), relu=True),
    "lazy": Entry(lambda: Lazy().eval(), expected="right or refused"),
    "frozen": Entry(lambda: basic().requires_grad_(False), (basic,), relu=True),
    "hook that changes": Entry(hooked, (plain_hooked,)),
    "float32": of_dtype(torch.float32),
    "bfloat16": of_dtype(torch.bfloat16),
    "float16": of_dtype(torch.float16),
    "mixed precision": Entry(whole(MixedPrecision)),
    "autocast inside": Entry(lambda: AutocastInside().eval(), dtype=torch.float32, expected="right or refused"),
    "quantized": Entry(quantized, dtype=torch.float32, expected="right or refused"),
    "wrapped function": Entry(lambda: Wrapping(basic()).eval(), (lambda: nn.Sequential(basic()),), relu=True),
}


# --- not a pure function of one image ---------------------------------------------------------------------------------


class Counts(nn.Module):
    """Counts its calls in a buffer, and nothing depends on it."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.how == "buffer":
            self.calls += 1
        elif self.how == "attribute":
            self.calls = self.calls + 1
        elif self.how == "stores":
            self.last = x
        return F.relu(x)


class MovingAverage(nn.Module):
    """Keeps its statistics up to date even in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean = 0.5 * self.mean + 0.5 * x.detach().mean((0, 2, 3))
        return x - self.mean[:, None, None]


class FrozenBranch(nn.Module):
    """A backbone under no_grad beside a trained branch."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.frozen = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU())
        self.trained = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU())

    def forward(self, x):
        if self.how == "no_grad":
            with torch.no_grad():
                frozen = self.frozen(x)
        elif self.how == "detach":
            frozen = self.frozen(x).detach()
        elif self.how == "data":
            frozen = self.frozen(x).data
        elif self.how == "numpy":
            frozen = torch.from_numpy(self.frozen(x).detach().numpy().copy())
        else:
            frozen = self.frozen(x)
        return torch.cat([frozen, self.trained(x)], 1)


def detached_gate(x):
    return x * torch.sigmoid(x.mean((2, 3), keepdim=True)).detach()


def straight_through(x):
    return x + (torch.round(x * 4) / 4 - x).detach()


def detached_norm(x):
    return x / (x.detach().abs().mean((1, 2, 3), keepdim=True) + 0.1)


class FakeQuantize(nn.Module):
    def forward(self, x):
        return torch.fake_quantize_per_tensor_affine(x.float(), 0.25, 0, -128, 127).to(x.dtype)


def folded_time(x):
    """Pairs of images as clips of two frames."""
    n, c, h, w = x.shape
    clips = x.view(n // 2, 2, c, h, w)
    return (clips + clips.flip(1)).view(n, c, h, w)


def attention_across_the_batch(x):
    flat = x.flatten(1)
    weights = torch.softmax(flat @ flat.T / flat.shape[1] ** 0.5, 1)
    return x + (weights @ flat).view_as(x)


def branches_on_the_batch(x):
    return F.relu(x) if x.mean() > 0.05 else F.relu(x) * 0.5


def random_layer(kind, *arguments):
    return part(lambda: kind(*arguments), expected="refused")


IMPURE = {
    "batch norm without running statistics": part(
        lambda: nn.Sequential(nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU()), expected="refused"
    ),
    "batch norm as a function in training": function(
        lambda x: F.relu(F.batch_norm(x, None, None, training=True)), expected="refused"
    ),
    "dropout always": function(F.dropout, expected="refused"),
    "spatial dropout always": function(lambda x: F.dropout2d(x, 0.5), expected="refused"),
    "noise": function(lambda x: x + 0.1 * torch.randn_like(x), expected="refused"),
    "noise of numpy": function(
        lambda x: x + 0.1 * torch.from_numpy(__import__("numpy").random.rand(*x.shape[1:])), expected="refused"
    ),
    "Gumbel softmax": function(lambda x: x * F.gumbel_softmax(x, dim=1), expected="refused"),
    "stochastic pooling": part(lambda: nn.FractionalMaxPool2d(2, output_size=6), expected="refused"),
    "time in the batch": function(folded_time, expected="refused"),
    "scaled by the batch": function(lambda x: x / x.abs().max(), expected="refused"),
    "centered by the batch": function(lambda x: F.relu(x - x.mean(0, keepdim=True)), expected="refused"),
    "attention across the batch": function(attention_across_the_batch, expected="refused"),
    "moving average": part(MovingAverage, expected="refused"),
    "counts in a buffer": part(lambda: Counts("buffer"), nn.ReLU, expected="right or refused"),
    "counts in an attribute": part(lambda: Counts("attribute"), nn.ReLU, expected="right or refused"),
    "stores the features": part(lambda: Counts("stores"), nn.ReLU, expected="right or refused"),
    "draws, without effect": function(lambda x: (torch.rand(3), F.relu(x))[1], F.relu, expected="right or refused"),
    **{
        f"frozen branch by {how}": part(
            lambda how=how: FrozenBranch(how), lambda: FrozenBranch("plain"), expected="either"
        )
        for how in ("no_grad", "detach", "data", "numpy")
    },
    "detached gate": function(
        detached_gate, lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), expected="either"
    ),
    "detached norm": function(
        detached_norm, lambda x: x / (x.abs().mean((1, 2, 3), keepdim=True) + 0.1), expected="either"
    ),
    "rounding": function(lambda x: torch.round(x * 4) / 4, expected="right or refused"),
    "straight-through rounding": function(straight_through, expected="no gradient"),
    "fake quantization": part(FakeQuantize, expected="no gradient"),
    "binary features": function(lambda x: (x > 0).to(x.dtype), expected="right or refused"),
    "sign": function(torch.sign, expected="right or refused"),
}


# --- what is returned -------------------------------------------------------------------------------------------------


class Returns(nn.Module):
    """A body and a head, and a function of features and logits that is returned."""

    def __init__(self, returned, outputs=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *head()[:4])
        self.last, self.returned = nn.Linear(8, outputs), returned

    def forward(self, x):
        features = self.body(x)
        return self.returned(features, self.last(features))


class Output(dict):
    """An output like those of transformers: entries are attributes as well."""

    __getattr__ = dict.__getitem__


@dataclass
class Named:
    logits: Tensor
    hidden_states: tuple[Tensor, ...] = ()


class EndsIn(nn.Module):
    def __init__(self, last, outputs=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *head()[:4])
        self.fc, self.last = nn.Linear(8, outputs), last

    def forward(self, x):
        return self.last(self.fc(self.body(x)))


def returns(returned, expected="right", sharpness=1.0, **traits):
    def scaled(features, logits):
        return returned(features, logits * sharpness)

    logits = whole(Returns, lambda features, logits: logits * sharpness)
    return Entry(whole(Returns, scaled), (logits,), expected=expected, **traits)


OUTPUTS = {
    "list of logits": returns(lambda f, z: [z]),
    "logits and None": returns(lambda f, z: (z, None)),
    "features [N, C, H, W] and logits": returns(lambda f, z: (f[:, :, None, None], z)),
    "features and logits": returns(lambda f, z: (f, z), expected="refused"),
    "logits and features": returns(lambda f, z: (z, f), expected="refused"),
    "two heads": returns(lambda f, z: (z, z.flip(1)), expected="refused"),
    "softmax and logits": returns(lambda f, z: (z.softmax(1), z), expected="either"),
    "logits and softmax": returns(lambda f, z: (z, z.softmax(1)), expected="either"),
    "softmax and logits, confident": returns(lambda f, z: (z.softmax(1), z), sharpness=300.0, expected="either"),
    "log-softmax and logits": returns(lambda f, z: (z.log_softmax(1), z), expected="right or refused"),
    "dictionary of one table": returns(lambda f, z: {"scores": z, "map": f[:, :, None, None]}),
    "dictionary with logits": returns(lambda f, z: {"features": f, "logits": z}),
    "dictionary of two tables": returns(lambda f, z: {"features": f, "scores": z}, expected="refused"),
    "dictionary like transformers": returns(lambda f, z: Output(loss=None, logits=z, hidden_states=(f,))),
    "object with logits": returns(lambda f, z: Named(z, (f,))),
    "nested": returns(lambda f, z: ((f, z),), expected="right or refused"),
    "logits [N, K, 1, 1]": returns(lambda f, z: z[:, :, None, None], expected="right or refused"),
    "log-softmax": Entry(whole(EndsIn, nn.LogSoftmax(1))),
    "log-softmax as a function": Entry(whole(EndsIn, Apply(lambda z: F.log_softmax(z, 1)))),
    "softmax": Entry(whole(EndsIn, nn.Softmax(1)), (whole(EndsIn, nn.Identity()),), expected="right or refused"),
    "softmax as a function": Entry(
        whole(EndsIn, Apply(lambda z: z.softmax(1))), (whole(EndsIn, nn.Identity()),), expected="right or refused"
    ),
    "softmax, confident": Entry(
        whole(EndsIn, nn.Sequential(Apply(lambda z: 300 * z), nn.Softmax(1))),
        (whole(EndsIn, nn.Sequential(Apply(lambda z: 300 * z), nn.Identity())),),
        expected="right or refused",
    ),
    "sigmoid of one output": Entry(whole(EndsIn, nn.Sigmoid(), outputs=1), targets=(0, 1), expected="right or refused"),
    "sigmoid of labels": Entry(whole(EndsIn, nn.Sigmoid()), expected="right or refused"),
    "one output [N]": Entry(whole(EndsIn, Apply(lambda z: z[:, 0]), outputs=1), targets=(0, 0)),
    "scaled logits": Entry(whole(EndsIn, Apply(lambda z: z * 3.0))),
    "tempered logits": Entry(whole(EndsIn, Apply(lambda z: z / 2.0 - 1.0))),
}


# --- architectures ----------------------------------------------------------------------------------------------------


class SqueezeExcite(nn.Module):
    def __init__(self, gate=torch.sigmoid):
        super().__init__()
        self.reduce, self.expand, self.gate = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1), gate

    def forward(self, x):
        return x * self.gate(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class SpatialAttention(nn.Module):
    """The spatial part of CBAM."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x):
        return x * torch.sigmoid(self.conv(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)))


class NonLocal(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        query, key, value = (layer(x).flatten(2) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(query.transpose(1, 2) @ key, -1)
        return x + (value @ weights.transpose(1, 2)).view_as(x)


class EfficientChannel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x):
        gate = self.conv(x.mean((2, 3)).unsqueeze(1)).squeeze(1)
        return x * torch.sigmoid(gate)[:, :, None, None].expand_as(x)


class UNetLike(nn.Module):
    def __init__(self, up):
        super().__init__()
        self.down, self.up, self.last = nn.Conv2d(8, 8, 3, 2, 1), up(), nn.Conv2d(16, 8, 1)

    def forward(self, x):
        return F.relu(self.last(torch.cat([x, self.up(F.relu(self.down(x)))], 1)))


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * k), nn.ReLU(True), nn.Conv2d(8 + 4 * k, 4, 3, padding=1))
            for k in range(2)
        )

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Shuffled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, groups=4)

    def forward(self, x):
        n, c, h, w = x.shape
        return self.conv(F.relu(x)).view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffledHalves(Shuffled):
    """ShuffleNet v2's unit: one half of the channels passes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        first, second = x.chunk(2, 1)
        return F.relu(torch.cat([first, self.conv(second)], 1)).unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(
            [
                nn.Conv2d(8, 2, 1),
                nn.Conv2d(8, 2, 3, padding=1),
                nn.Conv2d(8, 2, 3, padding=2, dilation=2),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(8, 2, 1)),
            ]
        )

    def forward(self, x):
        return F.relu(torch.cat([branch(F.relu(x)) for branch in self.branches], 1))


class GeneralizedMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.power = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return F.avg_pool2d(x.clamp(min=1e-6).pow(self.power), 2).pow(1.0 / self.power)


class Normalized(nn.Module):
    """Cosine classifier: normalized features and weights."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *head()[:4])
        self.weight = nn.Parameter(torch.randn(4, 8))

    def forward(self, x):
        return 10 * F.linear(F.normalize(self.body(x)), F.normalize(self.weight))


class Recurrent(nn.Module):
    """Rows of the image as a sequence."""

    def __init__(self, kind, *, last="state"):
        super().__init__()
        self.rnn, self.fc, self.last = kind(36, 8, batch_first=True), nn.Linear(8, 4), last

    def forward(self, x):
        outputs, state = self.rnn(x.permute(0, 2, 1, 3).flatten(2))
        return self.fc(
            outputs[:, -1] if self.last == "output" else (state[0] if isinstance(state, tuple) else state)[0]
        )


class Unrolled(nn.Module):
    """One convolution that is called several times, as in an equation that is integrated."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        for _ in range(3):
            x = x + 0.1 * torch.tanh(self.conv(x))
        return x


class Experts(nn.Module):
    def __init__(self, top):
        super().__init__()
        self.gate, self.top = nn.Linear(8, 3), top
        self.experts = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(3))

    def forward(self, x):
        weights = torch.softmax(self.gate(x.mean((2, 3))), 1)
        if self.top:
            values, indices = weights.topk(self.top, 1)
            weights = torch.zeros_like(weights).scatter(1, indices, values)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        return torch.einsum("ne,nechw->nchw", weights, outputs)


class Capsules(nn.Module):
    """Routing by agreement: the coupling is computed from detached predictions."""

    def __init__(self, detached):
        super().__init__()
        self.detached = detached
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 3), nn.ReLU(), nn.Flatten())
        self.weight = nn.Parameter(torch.randn(4, 16, 8, 4) / 4)

    def forward(self, x):
        capsules = self.body(x).view(len(x), 16, 8)
        predictions = torch.einsum("bid,cide->bcie", capsules, self.weight)
        fixed = predictions.detach() if self.detached else predictions
        logits = torch.zeros(len(x), 4, 16, dtype=x.dtype)
        for _ in range(2):
            outputs = torch.tanh((logits.softmax(1)[..., None] * fixed).sum(2))
            logits = logits + (fixed * outputs[:, :, None]).sum(-1)
        return torch.tanh((logits.softmax(1)[..., None] * predictions).sum(2)).pow(2).sum(-1)


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Linear(8, 6)
        nn.init.zeros_(self.localization.weight)
        self.localization.bias.data = torch.tensor([0.9, 0.1, 0.05, -0.1, 0.9, 0.0])

    def forward(self, x):
        theta = self.localization(x.mean((2, 3))).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


class Deformable(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset, self.weight = nn.Conv2d(8, 18, 3, padding=1), nn.Parameter(torch.randn(8, 8, 3, 3) / 8)

    def forward(self, x):
        import torchvision

        return torchvision.ops.deform_conv2d(x, self.offset(x), self.weight, padding=1)


class Tokens(nn.Module):
    """A transformer of patches of four pixels."""

    def __init__(self, block):
        super().__init__()
        self.patches, self.block, self.last = nn.Conv2d(3, 8, 4, 4), block(), nn.Linear(8, 4)
        self.position = nn.Parameter(torch.randn(1, 9, 8) / 8)

    def forward(self, x):
        return self.last(self.block(self.patches(x).flatten(2).transpose(1, 2) + self.position).mean(1))


class Attention(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.qkv, self.project = how, nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.how == "fused":
            y = F.scaled_dot_product_attention(q, k, v)
        elif self.how == "einsum":
            weights = torch.softmax(torch.einsum("nhid,nhjd->nhij", q, k) / 2, -1)
            y = torch.einsum("nhij,nhjd->nhid", weights, v)
        elif self.how == "in place":
            scores = q @ k.transpose(-2, -1)
            scores.mul_(0.5)
            y = scores.softmax(-1) @ v
        elif self.how == "baddbmm":
            q, k, v = (z.reshape(n * 2, t, 4) for z in (q, k, v))
            scores = torch.baddbmm(torch.zeros(n * 2, t, t, dtype=x.dtype), q, k.transpose(1, 2), beta=0, alpha=0.5)
            y = torch.bmm(scores.softmax(-1), v).view(n, 2, t, 4)
        else:
            y = torch.softmax(q @ k.transpose(-2, -1) / 2, -1) @ v
        return x + self.project(y.transpose(1, 2).reshape(n, t, 8))


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class LinearAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + q.softmax(-1) @ (k.softmax(1).transpose(1, 2) @ v)


class WindowAttention(nn.Module):
    """Tokens of a 3 × 3 grid, shifted, as in Swin."""

    def __init__(self):
        super().__init__()
        self.attention = Attention("plain")

    def forward(self, x):
        grid = torch.roll(x.view(len(x), 3, 3, 8), (-1, -1), (1, 2))
        rows = self.attention(grid.reshape(len(x) * 3, 3, 8)).view(len(x), 3, 3, 8)
        return torch.roll(rows, (1, 1), (1, 2)).reshape(len(x), 9, 8)


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.channels, self.norm = nn.Linear(9, 9), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + F.gelu(self.channels(x))


class FourierMixing(nn.Module):
    def forward(self, x):
        return x + torch.fft.fft2(x, norm="ortho").real


class PatchLoop(nn.Module):
    """Image by image, and stacked."""

    def __init__(self):
        super().__init__()
        self.body = basic()

    def forward(self, x):
        return torch.cat([self.body(image[None]) for image in x])


def bilinear_pooling(x):
    flat = x.flatten(2)
    return torch.bmm(flat, flat.transpose(1, 2))[:, :, :, None].expand(-1, -1, -1, 8) / flat.shape[2]


def unfolded(x):
    n, c, h, w = x.shape
    return F.unfold(x, 3, padding=1).view(n, c, 9, h, w).mean(2)


def pooled_and_unpooled(x):
    pooled, indices = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(pooled, indices, 2)


def winners(x):
    """The largest of the channels, the others zero."""
    return x * (x >= x.topk(4, 1).values[:, -1:])


def flipped_average():
    return Wrapping(basic(), lambda network, x: (network(x) + network(x.flip(-1))) / 2)


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(
            seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *head()), seed=k) for k in range(2)
        )

    def forward(self, x):
        return torch.stack([member(x) for member in self.members]).mean(0)


class ChannelsLastInside(nn.Module):
    """A ConvNeXt block: linear layers on [N, H, W, C]."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.LayerNorm(8)
        self.expand, self.reduce = nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x):
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.reduce(F.gelu(self.expand(y)))).permute(0, 3, 1, 2)


class ResponseNorm(nn.Module):
    """ConvNeXt V2's global response normalization."""

    def __init__(self):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.randn(8, 1, 1)), nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x):
        norm = x.norm(p=2, dim=(2, 3), keepdim=True)
        return self.gamma * (x * norm / (norm.mean(1, keepdim=True) + 1e-6)) + self.beta + x


def module(kind, *arguments, channels=8, **keywords):
    return part(lambda: kind(*arguments, **keywords), channels=channels, expected="either")


ARCHITECTURES = {
    "plain": Entry(basic, relu=True),
    "no bias": Entry(
        lambda: seeded(
            lambda: nn.Sequential(
                nn.Conv2d(3, 8, 3, bias=False),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(8, 8, 3, bias=False),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(8, 4, bias=False),
            )
        ),
        relu=True,
    ),
    "multilayer perceptron": Entry(
        lambda: seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(432, 16), nn.ReLU(), nn.Linear(16, 4))), relu=True
    ),
    "linear": Entry(lambda: seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(432, 4))), relu=True),
    "squeeze and excite": module(SqueezeExcite),
    "squeeze and excite, hard": module(SqueezeExcite, F.hardsigmoid),
    "spatial attention": module(SpatialAttention),
    "non-local": module(NonLocal),
    "efficient channel attention": module(EfficientChannel),
    "U-Net, bilinear": module(UNetLike, lambda: nn.Upsample(scale_factor=2, mode="bilinear")),
    "U-Net, nearest": module(UNetLike, lambda: nn.Upsample(scale_factor=2)),
    "U-Net, transposed convolution": module(UNetLike, lambda: nn.ConvTranspose2d(8, 8, 2, 2)),
    "U-Net, pixel shuffle": module(UNetLike, lambda: nn.Sequential(nn.Conv2d(8, 32, 1), nn.PixelShuffle(2))),
    "dense": module(Dense, channels=16),
    "channel shuffle": module(Shuffled),
    "channel shuffle of halves": module(ShuffledHalves),
    "inception": module(Inception),
    "max pooling": Entry(around(lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1))), relu=True),
    "adaptive max pooling": module(nn.AdaptiveMaxPool2d, 4),
    "power-average pooling": module(nn.LPPool2d, 2, 2),
    "generalized mean": module(GeneralizedMean),
    "pooled and unpooled": function(pooled_and_unpooled, expected="either"),
    "bilinear pooling": function(bilinear_pooling, expected="either"),
    "unfolded": function(unfolded, expected="either"),
    "winners only": function(winners, expected="either"),
    "sorted channels": function(lambda x: x.sort(1).values, expected="either"),
    "median": function(lambda x: x - x.flatten(2).median(2).values[:, :, None, None], expected="either"),
    "cumulative sum": function(lambda x: x.cumsum(3) / 12, expected="either"),
    "reflected border": function(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), expected="either"),
    "rolled": function(lambda x: F.relu(torch.roll(x, 2, 3)), expected="either"),
    "rotated": function(lambda x: F.relu(torch.rot90(x, 1, (2, 3))), expected="either"),
    "Fourier transform": function(
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=x.shape[2:]), expected="either"
    ),
    "complex magnitude": function(lambda x: torch.fft.fft2(x, norm="ortho").abs(), expected="either"),
    **{
        f"layer {label}": module(kind, *arguments)
        for label, kind, arguments in (
            ("GroupNorm", nn.GroupNorm, (2, 8)),
            ("InstanceNorm", nn.InstanceNorm2d, (8,)),
            ("InstanceNorm affine", nn.InstanceNorm2d, (8, 1e-5, 0.1, True)),
            ("LocalResponseNorm", nn.LocalResponseNorm, (3,)),
            ("LayerNorm", nn.LayerNorm, ((8, 12, 12),)),
            ("RMSNorm", nn.RMSNorm, ((8, 12, 12),)),
            ("Dropout", nn.Dropout, ()),
            ("AlphaDropout", nn.AlphaDropout, ()),
            ("Bilinear upsampling", nn.UpsamplingBilinear2d, (None, 2)),
        )
    },
    "global response norm": module(ResponseNorm),
    "ConvNeXt block": module(ChannelsLastInside),
    "cosine classifier": Entry(whole(Normalized), expected="either"),
    **{
        f"{kind.__name__} of rows": Entry(whole(Recurrent, kind), expected="either")
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
    },
    "LSTM of rows, last output": Entry(whole(Recurrent, nn.LSTM, last="output"), expected="either"),
    "unrolled": module(Unrolled),
    "experts": module(Experts, 0),
    "two of three experts": module(Experts, 2),
    "capsules": Entry(whole(Capsules, False), expected="either"),
    "capsules, detached routing": Entry(whole(Capsules, True), (whole(Capsules, False),), expected="either"),
    "spatial transformer": module(SpatialTransformer),
    "deformable convolution": module(Deformable),
    **{
        f"attention, {how}": Entry(
            whole(Tokens, lambda how=how: Attention(how)),
            (whole(Tokens, lambda: Attention("plain")),),
            expected="either",
        )
        for how in ("fused", "einsum", "in place")
    },
    "attention by a module": Entry(whole(Tokens, SelfAttention), expected="either"),
    "TransformerEncoder": Entry(
        whole(Tokens, lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)),
        expected="either",
    ),
    "TransformerEncoder, norm first": Entry(
        whole(
            Tokens,
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu"),
                1,
                enable_nested_tensor=False,
            ),
        ),
        expected="either",
    ),
    "linear attention": Entry(whole(Tokens, LinearAttention), expected="either"),
    "shifted windows": Entry(whole(Tokens, WindowAttention), expected="either"),
    "mixer": Entry(whole(Tokens, MixerBlock), expected="either"),
    "Fourier mixing": Entry(whole(Tokens, FourierMixing), expected="either"),
    "image by image": Entry(lambda: PatchLoop().eval(), (lambda: Wrapping(basic()),), expected="right or refused"),
    "vmap": Entry(
        lambda: Wrapping(basic(), lambda network, x: torch.vmap(lambda image: network(image[None])[0])(x)),
        (lambda: Wrapping(basic()),),
        expected="right or refused",
    ),
    "flipped average": Entry(flipped_average),
    "ensemble": Entry(whole(Ensemble), relu=True),
    "gray by expand": Entry(
        lambda: Wrapping(basic(), lambda network, x: network(x.expand(-1, 3, -1, -1))), shape=(1, 12, 12)
    ),
    "gray by repeat": Entry(
        lambda: Wrapping(basic(), lambda network, x: network(x.repeat(1, 3, 1, 1))), shape=(1, 12, 12)
    ),
    "resized input": Entry(
        lambda: Wrapping(basic(), lambda network, x: network(F.interpolate(x, (16, 16), mode="bilinear")))
    ),
    "cropped input": Entry(lambda: Wrapping(basic(), lambda network, x: network(x[:, :, 1:-1, 1:-1].contiguous()))),
    "clipped input": Entry(lambda: Wrapping(basic(), lambda network, x: network(x.clamp(0, 1))), expected="either"),
    "input in bytes": Entry(
        lambda: Wrapping(basic(), lambda network, x: network((x * 255).to(torch.uint8).to(x.dtype) / 255)),
        expected="no gradient",
    ),
    "branch on the batch": Entry(around(lambda: Apply(branches_on_the_batch)), expected="right or refused"),
}

#: How a buffer that is replaced is judged depends on the explainer; the maps are right. Dynamic quantization scales
#: by the batch, by less than a thousandth of the outputs, but the maps of this network are smaller still.
UNSTABLE = ("counts in an attribute", "quantized")

IDIOMS = {
    name: entry
    for name, entry in (WRITTEN | ACTIVATIONS | WEIGHTS | IMPURE | OUTPUTS | ARCHITECTURES).items()
    if name not in UNSTABLE
}
