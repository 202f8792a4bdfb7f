"""Many small networks of one architecture, computed as one.

A small network keeps a processor busy for microseconds and the interpreter for milliseconds. The members of a stack
share each call: their weights lie in one matrix ``[M, P]``, one row a member. Layers that our networks are made of
have a batched form here; every other one goes through ``torch.func.vmap``, or on a CPU one member after another.

On a CPU what a member learns does not depend on who stands beside it, to the bit: each of its numbers comes from its
own by the same operations in the same order, however many members there are. On an accelerator, whose libraries choose
their products by the size of the whole batch, it is the same up to rounding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xaibench.core.compiled_loops import kernels_enabled
from xaibench.models.compiled.dense_blocks import DenseBlock
from xaibench.models.compiled.linear_layers import perceptron
from xaibench.models.networks.xai_tris_networks import Network

#: One or more layers of all members: their weights by name, ``[M, ...]``, and images ``[M, B, ...]`` to the same. Or
#: dropout, which needs what decides it.
Step: TypeAlias = Callable[[dict[str, Tensor], Tensor], Tensor] | nn.Dropout


#: Numbers of a row are a multiple of it, so that all rows begin at the start of a cache line.
_ALIGNED = 16


class Stack:
    """M networks of equal architecture as one function of ``[M, B, C, H, W]``, with Adam over all of them.

    Args:
        models: The members; the stack works on copies of their weights.
        in_shape: ``(C, H, W)`` of the images.
        lr: Learning rate of each member.
        seeds: Decides the dropout of each member, as torch's global generator with this seed would.
        device: Where the stack computes.

    Raises:
        ValueError: If the members differ in type, layers, or shapes of their weights.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        in_shape: tuple[int, ...],
        lr: Sequence[float],
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        _require_equal(models)
        self.models, self.device = models, device
        self.names = [name for name, _ in models[0].named_parameters()]
        self.shapes = [weight.shape for weight in models[0].parameters()]
        self.sizes = [shape.numel() for shape in self.shapes]
        rows = [nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]
        # Every row begins as a matrix of its own would: how a library computes depends on where its numbers lie.
        self.weights = F.pad(torch.stack(rows), (0, -sum(self.sizes) % _ALIGNED)).to(device)
        self.leaves, self._gradient = self._leaves(), torch.zeros_like(self.weights)
        self.prepare, self.steps = _plan(models[0], in_shape, self.weights)
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.kept, self._present = self.weights.clone(), torch.arange(len(models), device=device)
        self._adam = Adam(self.weights, torch.tensor(lr, device=device, dtype=self.weights.dtype)[:, None])

    def logits(self, images: Tensor, train: bool) -> Tensor:
        """Logits ``[M, B, K]`` of the prepared images ``[M, B, ...]``, with dropout where ``train``."""
        named = dict(zip(self.names, self.leaves, strict=True))
        for step in self.steps:
            if isinstance(step, nn.Dropout):
                images = _dropped(images, step.p, self.generators) if train else images
            else:
                images = step(named, images)
        return images

    def descend(self, loss: Tensor) -> None:
        """One Adam step down ``loss``, the sum of the members' losses."""
        gradients = torch.autograd.grad(loss, self.leaves, materialize_grads=True)
        torch.cat([gradient.flatten(1) for gradient in gradients], dim=1, out=self._gradient[:, : sum(self.sizes)])
        self._adam.step(self._gradient)

    def keep(self, better: Tensor) -> None:
        """Remember the present weights of the members where ``better`` ``[M]`` is True."""
        better = better.to(self.weights.device)
        self.kept[self._present[better]] = self.weights[better]

    def retain(self, staying: Tensor) -> None:
        """Go on with those members only where ``staying`` ``[M]`` is True; the others keep what is remembered."""
        self.generators = [one for one, stays in zip(self.generators, staying.tolist(), strict=True) if stays]
        staying = staying.to(self.weights.device)
        self._present = self._present[staying]
        self.weights = self._adam.retain(staying)
        self.leaves, self._gradient = self._leaves(), torch.zeros_like(self.weights)

    def renew_generators(self) -> None:
        """Go on drawing the same numbers from new generators: one whose capture broke off may refuse to draw."""
        states = [one.get_state() for one in self.generators]
        self.generators = [torch.Generator(self.device).set_state(state) for state in states]

    def _leaves(self) -> list[Tensor]:
        """Each weight of all members: views, so that a change of the matrix is a change of them."""
        parts = zip(self._parts(self.weights), self.shapes, strict=True)
        return [part.view(-1, *shape).requires_grad_() for part, shape in parts]

    def _parts(self, rows: Tensor) -> list[Tensor]:
        """``[..., P]`` cut into the weights."""
        return list(torch.split(rows[..., : sum(self.sizes)], self.sizes, dim=-1))

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the kept weights into the members, and put these into evaluation mode."""
        for model, row in zip(self.models, self.kept, strict=True):
            for weight, values in zip(model.parameters(), self._parts(row), strict=True):
                weight.copy_(values.view_as(weight))
            model.eval()


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1; beta 0.9 and 0.999, eps 1e-8) over the rows of one matrix.

    Each row has its own learning rate ``lr`` ``[M, 1]``, for which ``torch.optim.Adam`` has no place. In single
    precision on the CPU it is a compiled loop that passes through the memory once: that counts where the rows are long.
    """

    def __init__(self, weights: Tensor, lr: Tensor) -> None:
        self.weights, self.lr = weights, lr
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = 0
        # Beta to the power of the steps, on the device: a step that is captured and replayed must count on.
        self._counts_there = weights.device.type not in ("cpu", "mps")  # mps has no float64, in which they are exact
        if self._counts_there:
            self._betas = torch.tensor([0.9, 0.999], dtype=torch.float64, device=weights.device)
            self._powers = torch.ones_like(self._betas)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """Change the weights in place."""
        self.steps += 1
        if self.weights.device.type == "cpu" and self.weights.dtype == torch.float32 and kernels_enabled():
            from xaibench.models.compiled.dense_loops import adam  # loads numba

            root = torch.full_like(self.lr, (1 - 0.999**self.steps) ** 0.5)
            scales = torch.cat([self.lr / (1 - 0.9**self.steps), root], dim=1)
            adam(*(each.numpy() for each in (self.weights, gradient, self.mean, self.square, scales)))
            return
        first, second = self._corrections()
        self.mean.lerp_(gradient, 1 - 0.9)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        root = self.square.sqrt().div_(second**0.5).add_(1e-8)
        self.weights.addcdiv_(self.lr / first * self.mean, root, value=-1)

    def _corrections(self) -> tuple[float, float] | tuple[Tensor, ...]:
        """One less beta to the power of the steps: what the two means have taken in by now."""
        if self._counts_there:
            return (1 - self._powers.mul_(self._betas)).to(self.weights.dtype).unbind()
        return 1 - 0.9**self.steps, 1 - 0.999**self.steps

    def retain(self, staying: Tensor) -> Tensor:
        """Go on with some of the rows, and return them."""
        self.weights, self.lr, self.mean, self.square = (
            each[staying] for each in (self.weights, self.lr, self.mean, self.square)
        )
        return self.weights


class Single:
    """One network of any kind behind the interface of a stack, with ``torch.optim.Adam``."""

    def __init__(self, model: nn.Module, lr: float, device: torch.device) -> None:
        self._home = next(model.parameters()).device
        self.model = model.to(device)
        self._adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
        self._kept = self._copy()

    def logits(self, images: Tensor, train: bool) -> Tensor:
        """Logits ``[1, B, K]`` of the images ``[1, B, C, H, W]``, in training mode where ``train``."""
        self.model.train(train)
        logits: Tensor = self.model(images[0])
        return logits[None]

    def descend(self, loss: Tensor) -> None:
        """One Adam step down ``loss``."""
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()

    def keep(self, better: Tensor) -> None:
        """Remember the present weights if ``better`` ``[1]`` is True."""
        if better.item():
            self._kept = self._copy()

    def retain(self, staying: Tensor) -> None:
        """Nothing: there is no other member."""

    def prepare(self, images: Tensor) -> Tensor:
        """The images as they are."""
        return images

    def write_back(self) -> None:
        """Put the kept weights into the model, in evaluation mode, on its own device, without gradients."""
        self.model.load_state_dict(self._kept)
        self._adam.zero_grad()
        self.model.to(self._home).eval()

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}


def _plan(model: nn.Module, in_shape: tuple[int, ...], like: Tensor) -> tuple[Callable[[Tensor], Tensor], list[Step]]:
    """What to do to the images once, and the steps from there to the logits."""
    if not isinstance(model, Network):
        return _unchanged, [_mapped(model, like)]
    if not kernels_enabled():
        return _unchanged, _plain_steps(model, like)
    prepare: Callable[[Tensor], Tensor] = _unchanged
    steps: list[Step] = []
    names, layers = [name for name, _ in model.named_children()], list(model.children())
    if isinstance(layers[0], nn.Conv2d):
        from xaibench.models.compiled.convolution_blocks import Convolutions  # loads numba

        convolutions = Convolutions.of(model, in_shape, like)
        if convolutions is not None:
            steps.append(convolutions)
            done = 3 * len(convolutions.blocks)
            names, layers, in_shape = names[done:], layers[done:], convolutions.blocks[-1].out_shape
    while layers:
        done = 1
        block = DenseBlock.of(layers, in_shape, like, first=not steps)
        if block is not None:
            prepare = prepare if steps else block.cut
            steps.append(_weighted(names[0], block))
            done, in_shape = 3, block.out_shape
        elif isinstance(layers[0], nn.Linear):
            done = _perceptron(layers)
            steps.append(_chained(names[:done:2]))
        elif isinstance(layers[0], nn.ReLU):
            steps.append(_relu)
        elif type(layers[0]) is nn.Dropout:
            steps.append(layers[0])
        else:
            # What comes out of an unknown layer has an unknown shape: all the rest goes with it.
            rest = Network(OrderedDict(zip(names, layers, strict=True)))
            return prepare, [*steps, _mapped(rest, like)]
        names, layers = names[done:], layers[done:]
    return prepare, steps


def _plain_steps(model: Network, like: Tensor) -> list[Step]:
    """Return one step per layer, without any of the faster forms."""
    return [
        layer if type(layer) is nn.Dropout else _mapped(Network(OrderedDict({name: layer})), like)
        for name, layer in model.named_children()
    ]


def _unchanged(images: Tensor) -> Tensor:
    return images


def _weighted(name: str, layer: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Step:
    return lambda named, images: layer(images, named[f"{name}.weight"], named.get(f"{name}.bias"))


def _perceptron(layers: Sequence[nn.Module]) -> int:
    """How many of the layers are linear ones with ReLU between them."""
    last = 0
    while [type(layer) for layer in layers[last + 1 : last + 3]] == [nn.ReLU, nn.Linear]:
        last += 2
    return last + 1


def _chained(names: Sequence[str]) -> Step:
    def step(named: dict[str, Tensor], images: Tensor) -> Tensor:
        return perceptron(images, [(named[f"{name}.weight"], named.get(f"{name}.bias")) for name in names])

    return step


def _relu(named: dict[str, Tensor], images: Tensor) -> Tensor:
    return images.relu()


def _dropped(images: Tensor, share: float, generators: Sequence[torch.Generator]) -> Tensor:
    """Dropout that draws for each member what ``nn.Dropout`` would draw for it alone."""
    kept = torch.empty(images.shape, dtype=images.dtype, device=images.device)
    for one, generator in zip(kept, generators, strict=True):
        one.bernoulli_(1 - share, generator=generator)
    return images * kept.div_(1 - share)


def _mapped(module: nn.Module, like: Tensor) -> Step:
    """Any module, for weights ``like``."""
    own = [name for name, _ in module.named_parameters()]

    def one(named: dict[str, Tensor], images: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(module, named, (images,))
        return out

    def each(named: dict[str, Tensor], images: Tensor) -> Tensor:
        # Copies lie in memory as those of a member alone do.
        members = [{name: named[name][m].clone() for name in own} for m in range(len(images))]
        return torch.stack([one(weights, batch.clone()) for weights, batch in zip(members, images, strict=True)])

    if like.device.type == "cpu":
        return each
    return lambda named, images: torch.func.vmap(one)({name: named[name] for name in own}, images)


def _require_equal(models: Sequence[nn.Module]) -> None:
    """Refuse members that one stack cannot hold."""
    first = models[0]
    for number, model in enumerate(models):
        if str(model) != str(first):
            raise ValueError(
                f"The models of a stack must have equal layers, but model {number} is\n{model}\nand model 0 is\n{first}"
                "\nTrain models of other shapes in a call of their own."
            )


def _shapes(model: nn.Module) -> list[tuple[str, torch.Size, torch.dtype]]:
    return [(name, weight.shape, weight.dtype) for name, weight in model.named_parameters()]
