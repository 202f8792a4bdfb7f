"""Stacks: several small networks of one architecture that are computed together.

A small network keeps the processor busy for microseconds and the interpreter for milliseconds. The members of a stack
share each call: their weights are in one matrix ``[M, P]``, one row per member. The layers of this library's networks
have batched forms here. Other layers run through ``torch.func.vmap``, or on a CPU for one member after another.

On a CPU, results of a member do not depend on the other members and are bit-identical: each of its numbers is computed
by the same operations in the same order, regardless of the number of members. On an accelerator, whose libraries choose
algorithms by the size of the whole batch, they agree up to rounding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xaibench.kernels.training.dense_blocks import DenseBlock, perceptron
from xaibench.models.networks.base import Network

#: One or more layers of all members: a function of their weights by name, ``[M, ...]``, and of images ``[M, B, ...]``.
#: Or dropout, which also needs the generators.
Step: TypeAlias = Callable[[dict[str, Tensor], Tensor], Tensor] | nn.Dropout


#: Rows are padded to a multiple of this, so that all of them begin at the start of a cache line.
_ROW_ALIGNMENT = 16


class Stack:
    """M networks of equal architecture as one function of ``[M, B, C, H, W]``, with Adam for all of them.

    Args:
        models: The members. The stack works on copies of their weights.
        in_shape: ``(C, H, W)`` of the images.
        lr: Learning rate of each member.
        seeds: Seed of each member's dropout, with the same effect as seeding torch's global generator.
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
        _check_equal_layers(models)
        self.models, self.device = models, device
        self.names = [name for name, _ in models[0].named_parameters()]
        self.shapes = [weight.shape for weight in models[0].parameters()]
        self.sizes = [shape.numel() for shape in self.shapes]
        rows = [nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]
        # Every row is aligned like a separate matrix, since the algorithm of a library depends on the memory alignment.
        self.weights = F.pad(torch.stack(rows), (0, -sum(self.sizes) % _ROW_ALIGNMENT)).to(device)
        self.leaves, self._gradient = self._make_leaves(), torch.zeros_like(self.weights)
        self.prepare, self.steps = _plan_steps(models[0], in_shape, self.weights)
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.kept, self._active = self.weights.clone(), torch.arange(len(models), device=device)
        self._adam = Adam(self.weights, torch.tensor(lr, device=device, dtype=self.weights.dtype)[:, None])

    def logits(self, images: Tensor, train: bool) -> Tensor:
        """Return logits ``[M, B, K]`` of the prepared images ``[M, B, ...]``, with dropout if ``train``."""
        named = dict(zip(self.names, self.leaves, strict=True))
        for step in self.steps:
            if isinstance(step, nn.Dropout):
                images = _dropout(images, step.p, self.generators) if train else images
            else:
                images = step(named, images)
        return images

    def descend(self, loss: Tensor) -> None:
        """Take one Adam step down ``loss``, the sum of the members' losses."""
        gradients = torch.autograd.grad(loss, self.leaves, materialize_grads=True)
        torch.cat([gradient.flatten(1) for gradient in gradients], dim=1, out=self._gradient[:, : sum(self.sizes)])
        self._adam.step(self._gradient)

    def keep(self, better: Tensor) -> None:
        """Store the current weights of the members for which ``better`` ``[M]`` is True."""
        better = better.to(self.weights.device)
        self.kept[self._active[better]] = self.weights[better]

    def retain(self, staying: Tensor) -> None:
        """Continue with the members for which ``staying`` ``[M]`` is True; the others keep their stored weights."""
        self.generators = [one for one, stays in zip(self.generators, staying.tolist(), strict=True) if stays]
        staying = staying.to(self.weights.device)
        self._active = self._active[staying]
        self.weights = self._adam.retain(staying)
        self.leaves, self._gradient = self._make_leaves(), torch.zeros_like(self.weights)

    def _make_leaves(self) -> list[Tensor]:
        """Return each weight of all members as a view of the matrix, so that both change together."""
        weights = zip(self._split_weights(self.weights), self.shapes, strict=True)
        return [weight.view(-1, *shape).requires_grad_() for weight, shape in weights]

    def _split_weights(self, rows: Tensor) -> list[Tensor]:
        """Split rows ``[..., P]`` into the flattened weights of each layer."""
        return list(torch.split(rows[..., : sum(self.sizes)], self.sizes, dim=-1))

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the stored weights into the members and set these to evaluation mode."""
        for model, row in zip(self.models, self.kept, strict=True):
            for weight, values in zip(model.parameters(), self._split_weights(row), strict=True):
                weight.copy_(values.view_as(weight))
            model.eval()


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1; beta 0.9 and 0.999, eps 1e-8) for the rows of one matrix.

    Each row has its own learning rate ``lr`` ``[M, 1]``, which ``torch.optim.Adam`` does not support. In single
    precision on a CPU it is a compiled loop that passes over the memory once, which is faster for long rows.
    """

    def __init__(self, weights: Tensor, lr: Tensor) -> None:
        self.weights, self.lr = weights, lr
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """Update the weights in place."""
        self.steps += 1
        first, second = 1 - 0.9**self.steps, 1 - 0.999**self.steps  # bias corrections
        if self.weights.device.type == "cpu" and self.weights.dtype == torch.float32:
            from xaibench.kernels.training.dense_loops import adam  # loads numba

            scales = torch.cat([self.lr / first, torch.full_like(self.lr, second**0.5)], dim=1)
            adam(*(each.numpy() for each in (self.weights, gradient, self.mean, self.square, scales)))
            return
        self.mean.lerp_(gradient, 1 - 0.9)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        root = self.square.sqrt().div_(second**0.5).add_(1e-8)
        self.weights.addcdiv_(self.lr / first * self.mean, root, value=-1)

    def retain(self, staying: Tensor) -> Tensor:
        """Continue with some of the rows and return them."""
        self.weights, self.lr, self.mean, self.square = (
            each[staying] for each in (self.weights, self.lr, self.mean, self.square)
        )
        return self.weights


class Single:
    """One network of any kind with the interface of a stack, trained by ``torch.optim.Adam``."""

    def __init__(self, model: nn.Module, lr: float, device: torch.device) -> None:
        self._home = next(model.parameters()).device
        self.model = model.to(device)
        self._adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
        self._kept = self._copy()

    def logits(self, images: Tensor, train: bool) -> Tensor:
        """Return logits ``[1, B, K]`` of the images ``[1, B, C, H, W]``, in training mode if ``train``."""
        self.model.train(train)
        logits: Tensor = self.model(images[0])
        return logits[None]

    def descend(self, loss: Tensor) -> None:
        """Take one Adam step down ``loss``."""
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()

    def keep(self, better: Tensor) -> None:
        """Store the current weights if ``better`` ``[1]`` is True."""
        if better.item():
            self._kept = self._copy()

    def retain(self, staying: Tensor) -> None:
        """Do nothing, since there are no other members."""

    def prepare(self, images: Tensor) -> Tensor:
        """Return the images unchanged."""
        return images

    def write_back(self) -> None:
        """Load the stored weights into the model, in evaluation mode, on its original device, without gradients."""
        self.model.load_state_dict(self._kept)
        self._adam.zero_grad()
        self.model.to(self._home).eval()

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}


def _plan_steps(
    model: nn.Module, in_shape: tuple[int, ...], like: Tensor
) -> tuple[Callable[[Tensor], Tensor], list[Step]]:
    """Return a function that prepares the images once, and the steps from prepared images to logits."""
    if not isinstance(model, Network):
        return _identity, [_module_step(model, like)]
    prepare: Callable[[Tensor], Tensor] = _identity
    steps: list[Step] = []
    names, layers = [name for name, _ in model.named_children()], list(model.children())
    if isinstance(layers[0], nn.Conv2d):
        from xaibench.kernels.training.convolution_blocks import Convolutions  # loads numba

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
            steps.append(_block_step(names[0], block))
            done, in_shape = 3, block.out_shape
        elif isinstance(layers[0], nn.Linear):
            last = 0
            while [type(layer) for layer in layers[last + 1 : last + 3]] == [nn.ReLU, nn.Linear]:
                last += 2
            done = last + 1
            steps.append(_perceptron_step(names[:done:2]))
        elif isinstance(layers[0], nn.ReLU):
            steps.append(lambda _, images: images.relu())
        elif type(layers[0]) is nn.Dropout:
            steps.append(layers[0])
        else:
            # The output shape of an unknown layer is unknown, so it and all following layers become one step.
            rest = Network(OrderedDict(zip(names, layers, strict=True)))
            return prepare, [*steps, _module_step(rest, like)]
        names, layers = names[done:], layers[done:]
    return prepare, steps


def _identity(images: Tensor) -> Tensor:
    return images


def _block_step(name: str, layer: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Step:
    return lambda named, images: layer(images, named[f"{name}.weight"], named.get(f"{name}.bias"))


def _perceptron_step(names: Sequence[str]) -> Step:
    def step(named: dict[str, Tensor], images: Tensor) -> Tensor:
        return perceptron(images, [(named[f"{name}.weight"], named.get(f"{name}.bias")) for name in names])

    return step


def _dropout(images: Tensor, share: float, generators: Sequence[torch.Generator]) -> Tensor:
    """Apply dropout; each member gets the random numbers that ``nn.Dropout`` would draw for it alone."""
    mask = torch.empty(images.shape, dtype=images.dtype, device=images.device)
    for one, generator in zip(mask, generators, strict=True):
        one.bernoulli_(1 - share, generator=generator)
    return images * mask.div_(1 - share)


def _module_step(module: nn.Module, like: Tensor) -> Step:
    """Return a step that runs any module, for weights on the device of ``like``."""
    names = [name for name, _ in module.named_parameters()]

    def one(named: dict[str, Tensor], images: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(module, named, (images,))
        return out

    def each(named: dict[str, Tensor], images: Tensor) -> Tensor:
        # Copies have the memory layout that a member alone would have.
        members = [{name: named[name][m].clone() for name in names} for m in range(len(images))]
        return torch.stack([one(weights, batch.clone()) for weights, batch in zip(members, images, strict=True)])

    if like.device.type == "cpu":
        return each
    return lambda named, images: torch.func.vmap(one)({name: named[name] for name in names}, images)


def _check_equal_layers(models: Sequence[nn.Module]) -> None:
    """Check that all members have the same layers."""
    first = models[0]
    for number, model in enumerate(models):
        if str(model) != str(first):
            raise ValueError(
                f"The models of a stack must have equal layers, but model {number} is\n{model}\nand model 0 is\n{first}"
                "\nTrain models of other shapes in a separate call."
            )
