"""Many small networks of one architecture, computed as one.

A small network keeps a processor busy for microseconds and the interpreter for milliseconds. The members of a stack
share each call: their weights lie in one matrix ``[M, P]``, one row a member. Layers that our networks are made of
have a batched form here; every other one goes through ``torch.func.vmap``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from xaibench.models.dense import DenseBlock
from xaibench.models.tetromino import Network

#: One or more layers of all members: their weights by name, ``[M, ...]``, and images ``[M, B, ...]`` to the same.
Step: TypeAlias = Callable[[dict[str, Tensor], Tensor], Tensor]


class Stack:
    """M networks of equal architecture as one function of ``[M, B, C, H, W]``, with Adam over all of them.

    Args:
        models: The members; the stack works on copies of their weights.
        in_shape: ``(C, H, W)`` of the images.
        lr: Learning rate of each member.
        device: Where the stack computes.

    Raises:
        ValueError: If the members differ in type, layers, or shapes of their weights.
    """

    def __init__(
        self, models: Sequence[nn.Module], in_shape: tuple[int, ...], lr: Sequence[float], device: torch.device
    ) -> None:
        _require_equal(models)
        self.models = models
        self.names = [name for name, _ in models[0].named_parameters()]
        self.shapes = [weight.shape for weight in models[0].parameters()]
        self.sizes = [shape.numel() for shape in self.shapes]
        rows = [nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]
        self.weights = torch.stack(rows).to(device).requires_grad_()
        self.prepare, self.steps = _plan(models[0], in_shape, self.weights)
        self.kept = self.weights.detach().clone()
        self._adam = Adam(self.weights, torch.tensor(lr, device=device, dtype=self.weights.dtype)[:, None])

    def logits(self, images: Tensor, train: bool) -> Tensor:
        """Logits ``[M, B, K]`` of the prepared images ``[M, B, ...]``; nothing here depends on ``train``."""
        parts = torch.split(self.weights, self.sizes, dim=1)
        named = {name: part.view(-1, *shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}
        for step in self.steps:
            images = step(named, images)
        return images

    def descend(self, loss: Tensor) -> None:
        """One Adam step down ``loss``, the sum of the members' losses."""
        (gradient,) = torch.autograd.grad(loss, self.weights)
        self._adam.step(gradient)

    def keep(self, better: Tensor) -> None:
        """Remember the present weights of the members where ``better`` ``[M]`` is True."""
        self.kept = torch.where(better[:, None].to(self.weights.device), self.weights.detach(), self.kept)

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the kept weights into the members, and put these into evaluation mode."""
        for model, row in zip(self.models, self.kept, strict=True):
            for weight, values in zip(model.parameters(), row.split(self.sizes), strict=True):
                weight.copy_(values.view_as(weight))
            model.eval()


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1; beta 0.9 and 0.999, eps 1e-8) over the rows of one matrix.

    Each row has its own learning rate ``lr`` ``[M, 1]``, for which ``torch.optim.Adam`` has no place.
    """

    def __init__(self, weights: Tensor, lr: Tensor) -> None:
        self.weights, self.lr = weights, lr
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """Change the weights in place."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - 0.9)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        root = self.square.sqrt().div_((1 - 0.999**self.steps) ** 0.5).add_(1e-8)
        self.weights.sub_(self.lr / (1 - 0.9**self.steps) * self.mean / root)


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
        return _unchanged, [_vmapped(model)]
    prepare: Callable[[Tensor], Tensor] = _unchanged
    steps: list[Step] = []
    names, layers = [name for name, _ in model.named_children()], list(model.children())
    while layers:
        done = 1
        block = DenseBlock.of(layers, in_shape, like, first=not steps)
        if block is not None:
            prepare = prepare if steps else block.cut
            steps.append(_weighted(names[0], block))
            done, in_shape = 3, block.out_shape
        elif isinstance(layers[0], nn.Linear):
            steps.append(_weighted(names[0], _linear))
        elif isinstance(layers[0], nn.ReLU):
            steps.append(_relu)
        else:
            # What comes out of an unknown layer has an unknown shape: all the rest goes with it.
            rest = Network(OrderedDict(zip(names, layers, strict=True)))
            return prepare, [*steps, _vmapped(rest)]
        names, layers = names[done:], layers[done:]
    return prepare, steps


def _unchanged(images: Tensor) -> Tensor:
    return images


def _weighted(name: str, layer: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Step:
    return lambda named, images: layer(images, named[f"{name}.weight"], named.get(f"{name}.bias"))


def _linear(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    columns = images.flatten(2).mT
    out = weight @ columns if bias is None else torch.baddbmm(bias[:, :, None], weight, columns)
    return out.mT


def _relu(named: dict[str, Tensor], images: Tensor) -> Tensor:
    return images.relu()


def _vmapped(module: nn.Module) -> Step:
    own = [name for name, _ in module.named_parameters()]

    def one(named: dict[str, Tensor], images: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(module, named, (images,))
        return out

    return lambda named, images: torch.func.vmap(one)({name: named[name] for name in own}, images)


def _require_equal(models: Sequence[nn.Module]) -> None:
    """Refuse members that one stack cannot hold."""
    first = models[0]
    for number, model in enumerate(models):
        if str(model) != str(first):
            raise ValueError(
                f"the models of a stack must have equal layers, but model {number} is\n{model}\nand model 0 is\n{first}"
                "\nTrain models of other shapes in a call of their own."
            )


def _shapes(model: nn.Module) -> list[tuple[str, torch.Size, torch.dtype]]:
    return [(name, weight.shape, weight.dtype) for name, weight in model.named_parameters()]
