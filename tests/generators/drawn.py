"""What the fuzzers draw: networks of common layers, odd ones, images, targets and parameters of any kind."""

import random
import traceback
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

#: What must come of a network: maps and scores, a refusal where a gradient is needed, a refusal wherever it is called,
#: or either (some outputs and methods suit it).
Fate = Literal["sound", "gradient", "refused", "either"]


class Drawn(nn.Module):
    """Layers, and functions of the images before them and of the logits after them."""

    def __init__(self, body, before, after):
        super().__init__()
        self.body, self.before, self.after = body, before, after
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, images):
        return self.after(self, self.body(self.before(self, images)))


class Residual(nn.Module):
    def __init__(self, convolution, channels):
        super().__init__()
        self.convolution, self.act = convolution(channels, channels, 3, padding=1), nn.ReLU()

    def forward(self, x):
        return self.act(x + self.convolution(self.act(x)))


class Attention(nn.Module):
    """Every pixel is a token."""

    def __init__(self, channels):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(channels, 1, batch_first=True), nn.LayerNorm(channels)

    def forward(self, x):
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        return (tokens + self.attention(tokens, tokens, tokens)[0]).transpose(1, 2).reshape(x.shape)


def changed(change):
    """Change the weights of the last layer."""

    def apply(network):
        last = network.body[-1]
        last.weight = nn.Parameter(change(last.weight.detach()))

    return apply


def raising(error):
    def after(network, logits):
        raise error

    return after


def without_grad(function):
    def after(network, logits):
        with torch.no_grad():
            return function(logits)

    return after


def count_calls(network, logits):
    network.calls += 1
    return logits


def write(network, images):
    return images.sub_(0.5)


@dataclass(frozen=True)
class Odd:
    """An oddity of a network; ``change`` is called with the finished one."""

    fate: Fate
    after: object = lambda network, logits: logits
    before: object = lambda network, images: images
    change: object = lambda network: None


OWN = torch.Generator()
ODD = {
    "plain": Odd("sound"),
    "train": Odd("sound", change=nn.Module.train),
    "double": Odd("sound", change=nn.Module.double),
    "frozen": Odd("sound", change=lambda network: network.requires_grad_(False)),
    "has gradients": Odd("sound", change=lambda network: [setattr(p, "grad", p * 0) for p in network.parameters()]),
    "has hooks": Odd("sound", change=lambda network: network.body.register_forward_hook(lambda *_: None)),
    "dictionary": Odd("sound", lambda network, logits: {"logits": logits, "more": [None, "text"]}),
    "tuple": Odd("sound", lambda network, logits: (logits, logits[:, :, None])),
    "object": Odd("sound", lambda network, logits: SimpleNamespace(logits=logits)),
    "writes its input": Odd("sound", before=write),
    "slices": Odd("sound", before=lambda network, images: images.flip(-1).transpose(-1, -2).transpose(-1, -2)),
    "softmax": Odd("either", lambda network, logits: logits.softmax(1)),
    "softmax with logits": Odd("either", lambda network, logits: (logits.softmax(1), logits)),
    "sigmoid": Odd("either", lambda network, logits: logits.sigmoid()),
    "one logit": Odd("either", lambda network, logits: logits[:, 0]),
    "half": Odd("either", change=nn.Module.half),
    "bfloat16": Odd("either", change=nn.Module.bfloat16),
    "large": Odd("either", lambda network, logits: 1e30 * logits),
    "infinite inside": Odd("either", lambda network, logits: (logits * 1e38 * 1e38).clamp(-1, 1)),
    "ignores images": Odd("either", lambda network, logits: torch.ones_like(logits)),
    "multiplies by zero": Odd("either", lambda network, logits: logits * 0),
    "steps": Odd("either", lambda network, logits: (logits > 0).to(logits)),
    "square root": Odd("either", lambda network, logits: logits.relu().sqrt()),
    "detached": Odd("gradient", lambda network, logits: logits.detach()),
    "no_grad": Odd("gradient", without_grad(lambda logits: 2 * logits)),
    "numpy": Odd("gradient", lambda network, logits: torch.from_numpy(logits.detach().cpu().numpy()).to(logits)),
    "rounds": Odd("either", lambda network, logits: (logits * 4096).round()),
    "other with gradient": Odd("gradient", lambda network, logits: logits * (2 if torch.is_grad_enabled() else 1)),
    "in inference mode": Odd("gradient", lambda network, logits: torch.inference_mode()(lambda: logits * 2)()),
    "random": Odd("refused", lambda network, logits: F.dropout(logits + 1)),
    "random by numpy": Odd("refused", lambda network, logits: logits + float(np.random.rand())),
    "random by python": Odd("refused", lambda network, logits: logits + random.random()),
    "own generator": Odd("refused", lambda network, logits: logits + torch.rand(1, generator=OWN).to(logits)),
    "batch": Odd("refused", lambda network, logits: logits + (logits + 1).square().sum(0)),
    "counts": Odd("refused", count_calls),
    "not a number": Odd("refused", change=changed(lambda weight: weight * torch.nan)),
    "infinite": Odd("refused", change=changed(lambda weight: weight + torch.inf)),
    "meta": Odd("refused", change=lambda network: network.to("meta")),
    "half meta": Odd("refused", change=changed(lambda weight: weight.to("meta"))),
    "complex": Odd("refused", change=changed(lambda weight: weight * 1j)),
    "complex outputs": Odd("refused", lambda network, logits: logits * (1 + 1j)),
    "integers": Odd("refused", lambda network, logits: logits.long()),
    "booleans": Odd("refused", lambda network, logits: logits > 0),
    "sparse": Odd("refused", lambda network, logits: logits.to_sparse()),
    "on meta": Odd("refused", lambda network, logits: logits.to("meta")),
    "array": Odd("refused", lambda network, logits: logits.detach().numpy()),
    "None": Odd("refused", lambda network, logits: None),
    "text": Odd("refused", lambda network, logits: "cat"),
    "no tables": Odd("refused", lambda network, logits: {}),
    "two tables": Odd("refused", lambda network, logits: (logits, logits + torch.arange(logits.shape[1]).to(logits))),
    "no classes": Odd("refused", lambda network, logits: logits[:, :0]),
    "one number": Odd("refused", lambda network, logits: logits.sum()),
    "a row more": Odd("refused", lambda network, logits: torch.cat([logits, logits[:1]])),
    "maps of logits": Odd("refused", lambda network, logits: logits[:, :, None, None]),
    "RuntimeError": Odd("refused", raising(RuntimeError("broken"))),
    "KeyError": Odd("refused", raising(KeyError("broken"))),
    "AttributeError": Odd("refused", raising(AttributeError("broken"))),
    "NotImplementedError": Odd("refused", raising(NotImplementedError())),
    "RecursionError": Odd("refused", raising(RecursionError("broken"))),
    "wrong layer": Odd("refused", before=lambda network, images: images.flatten(1)[:, :-1]),
}


@dataclass(frozen=True)
class DrawnNetwork:
    """A network, its number of classes, the name of its oddity, and what must come of it."""

    network: nn.Module
    classes: int
    odd: str
    fate: Fate

    @property
    def is_random(self):
        return self.odd.startswith("random")

    def raised(self, error):
        """Return whether an error is the network's own."""
        return "Error" in self.odd and traceback.extract_tb(error.__traceback__)[-1].filename == __file__


@st.composite
def networks(draw, shape, odd=None):
    """Draw a network for images ``[C, H, W]`` or volumes ``[C, D, H, W]``."""
    odd = draw(st.sampled_from(["plain"] * 20 + list(ODD))) if odd is None else odd
    classes = draw(st.integers(2, 4))
    # A group needs two numbers.
    possible = [name for name in LAYERS if name != "groups" or max(shape[1:]) > 1]
    layers = draw(st.lists(st.sampled_from(possible), max_size=4))
    head = draw(st.sampled_from(["flat", "flat", "pooled", "perceptron"]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw(st.integers(0, 99)))
        body, channels = nn.Sequential(), shape[0]
        shared = nn.ReLU()
        for layer in layers:
            part, channels = LAYERS[layer](channels, len(shape) - 1, shared)
            body.append(part)
        pool = nn.AdaptiveAvgPool2d(1) if len(shape) == 3 else nn.AdaptiveAvgPool3d(1)
        inputs = channels if head == "pooled" else channels * int(np.prod(shape[1:]))
        body += nn.Sequential(*([pool] if head == "pooled" else []), nn.Flatten())
        if head == "perceptron":
            body += nn.Sequential(nn.Linear(inputs, 5), shared, nn.Linear(5, classes))
        else:
            body.append(nn.Linear(inputs, classes))
        for module in body.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                nn.init.uniform_(module.running_mean, -0.3, 0.3)
                nn.init.uniform_(module.running_var, 0.5, 2)
    network = Drawn(body, ODD[odd].before, ODD[odd].after).eval()
    ODD[odd].change(network)
    # Torch does not differentiate some sequences of operations in place.
    is_certain = ODD[odd].fate != "sound" or "ReLU in place" not in layers
    return DrawnNetwork(network, classes, odd, ODD[odd].fate if is_certain else "either")


def convolution(size):
    def make(channels, axes, shared):
        kind = nn.Conv2d if axes == 2 else nn.Conv3d
        return kind(channels, 3, size, padding=size // 2), 3

    return make


def same(make):
    return lambda channels, axes, shared: (make(channels, axes, shared), channels)


LAYERS = {
    "convolution": convolution(3),
    "convolution of pixels": convolution(1),
    "normalization": same(lambda channels, axes, _: (nn.BatchNorm2d if axes == 2 else nn.BatchNorm3d)(channels)),
    "groups": same(lambda channels, axes, _: nn.GroupNorm(1, channels)),
    "ReLU": same(lambda *_: nn.ReLU()),
    "ReLU in place": same(lambda *_: nn.ReLU(inplace=True)),
    "shared ReLU": same(lambda channels, axes, shared: shared),
    "leaky": same(lambda *_: nn.LeakyReLU(0.1)),
    "smooth": same(lambda *_: nn.GELU()),
    "tanh": same(lambda *_: nn.Tanh()),
    "dropout": same(lambda *_: nn.Dropout(0.5)),
    "largest": same(lambda channels, axes, _: (nn.MaxPool2d if axes == 2 else nn.MaxPool3d)(3, 1, 1)),
    "mean": same(lambda channels, axes, _: nn.AvgPool2d(3, 1, 1) if axes == 2 else nn.Identity()),
    "residual": same(lambda channels, axes, _: Residual(nn.Conv2d if axes == 2 else nn.Conv3d, channels)),
    "attention": same(lambda channels, axes, _: Attention(channels)),
}


#: What is drawn instead of images, by its name.
BROKEN_IMAGES = {
    "integers": lambda x: x.long(),
    "booleans": lambda x: x > 0,
    "complex": lambda x: x + 0j,
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "not a number": lambda x: x * torch.nan,
    "infinite": lambda x: x + torch.inf,
    "empty": lambda x: x[:0],
    "no columns": lambda x: x[..., :0],
    "no channels": lambda x: x[:, :0],
    "a single one": lambda x: x[0],
    "flat": lambda x: x.flatten(1),
    "an axis more": lambda x: x[..., None, None],
    "lists": lambda x: x.tolist(),
    "None": lambda x: None,
    "objects": lambda x: x.numpy().astype(object),
    "texts": lambda x: x.numpy().astype(str),
    "masked": lambda x: np.ma.masked_array(x.numpy(), mask=x.numpy() > 0),
}
IMAGES = {
    "plain": lambda x: x,
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "with a gradient": lambda x: x.requires_grad_(),
    "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "permuted": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "expanded": lambda x: x[:1].expand(x.shape),
    "of inference mode": lambda x: torch.inference_mode()(x.clone)(),
    "array": lambda x: x.numpy(),
    "reversed array": lambda x: x.numpy()[::-1],
    "big-endian": lambda x: x.numpy().astype(">f8"),
    "zero": lambda x: 0 * x,
    "constant": lambda x: 0 * x + 0.7,
    "tiny": lambda x: 1e-40 * x,
}
BROKEN_TARGETS = {
    "too large": lambda y, classes: y + classes,
    "negative": lambda y, classes: y - classes,
    "float": lambda y, classes: y + 0.5,
    "bool": lambda y, classes: y > 0,
    "complex": lambda y, classes: y + 0j,
    "too long": lambda y, classes: torch.cat([y, y[:1]]),
    "none": lambda y, classes: None,
    "text": lambda y, classes: "cat",
    "texts": lambda y, classes: ["cat"] * len(y),
    "meta": lambda y, classes: y.to("meta"),
    "one too large": lambda y, classes: 10**30,
    "ragged": lambda y, classes: [[0], [0, 1]],
    "no label": lambda y, classes: torch.zeros(len(y), classes, dtype=torch.int64),
    "cube": lambda y, classes: y[:, None, None],
}
TARGETS = {
    "plain": lambda y, classes: y,
    "list": lambda y, classes: y.tolist(),
    "small": lambda y, classes: y.to(torch.uint8),
    "array": lambda y, classes: y.numpy(),
    "one": lambda y, classes: int(y[0]),
    "scalar": lambda y, classes: y[0],
}
JUNK = [0, -1, 1, 2, 3, 10**30, 0.0, -0.5, 0.5, 1e-30, 1e300, np.nan, np.inf, True, None, "x", "", (), [], {}, 1j]


def state_of_the_process():
    generators = torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()
    return *generators, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
