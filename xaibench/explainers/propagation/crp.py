"""Concept relevance propagation: the relevance that flows through chosen channels of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from xaibench.explainers.propagation.layer_operations import Operation
from xaibench.explainers.propagation.lrp import LayerwiseRelevance, operation_layer
from xaibench.explainers.shared.layers import check_rows, layer_name
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.registry.info import ExplainerInfo


@ExplainerInfo(
    "CRP",
    family="Relevance",
    needs_convolution=True,
    citation="Achtibat et al.: From Attribution Maps to Human-Understandable Explanations through Concept "
    "Relevance Propagation. Nature Machine Intelligence 5, 2023.",
    passes=2,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class CRP(LayerwiseRelevance):
    """Relevance of the target's logit that flows through chosen channels of a layer, which represent concepts.

    The relevance of the outputs of the layer is set to zero outside these channels and propagated on to the pixels,
    with the rules of :class:`LayerwiseRelevance`. By default these are the channels of the largest relevance, summed
    over the positions, for each image. The maps of all channels of a layer sum to the map of :class:`.LRPEpsilon` (or
    of another rule), if all relevance flows through the layer; in a network with branches, what bypasses the layer is
    in none of them.

    The relevance of a convolution's channel is that of its activation, since activations pass it on unchanged; a batch
    normalization belongs to the convolution before it. The authors use composites of rules: epsilon in dense layers, z+
    in convolutions, a flat rule in the first layer. Here the default is epsilon in all layers; ``rules={"features.*":
    "z+"}`` and ``input_rule="w2"`` come close to theirs. For equal rules, the maps agree with the authors' package
    (zennit-crp 0.6, float64) to 10⁻¹⁷ (epsilon) and 2·10⁻⁸ (z+, whose denominators zennit stabilizes).

    Attributes:
        layer: The layer, by its name in ``model.named_modules()``, or the module itself: a convolution or a linear
            layer, whose channels are its last dimension. ``None``: the last convolution. If it is called several times
            per pass, the last call counts.
        concepts: Indices of the channels; ``None``: the most relevant ones of each image.
        n_concepts: Number of the most relevant channels, if ``concepts`` is ``None``.
    """

    layer: str | nn.Module | None = None
    concepts: tuple[int, ...] | None = None
    n_concepts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.concepts is not None:
            # A TOML file and the command line give lists.
            object.__setattr__(self, "concepts", tuple(self.concepts))
            if not self.concepts or not all(isinstance(k, int) and k >= 0 for k in self.concepts):
                raise ValueError(
                    f"CRP(concepts={self.concepts!r}): expected the indices of one or more channels, from 0, or None."
                )

    def _attribute(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        name = layer_name("CRP", model, self.layer) if isinstance(self.layer, nn.Module) else self.layer
        seen: list[tuple[Operation, Tensor]] = []

        def watch(operation: Operation, output: Tensor) -> Tensor:
            if operation.kind == "linear":
                check_rows(operation.where, output, images)
                seen.append((operation, output))
                return output.clone()  # the network may overwrite it
            return output

        def condition() -> tuple[Tensor, partial[Tensor]]:
            operation, output = self._find_layer(name, seen)
            return output, partial(self._keep_channels, operation)

        return self._propagate(model, images, targets, watch, condition)

    def _find_layer(self, name: str | None, seen: list[tuple[Operation, Tensor]]) -> tuple[Operation, Tensor]:
        """Return the last call of the layer with its output."""
        for operation, output in reversed(seen):
            if operation_layer(operation) == name or (name is None and operation.called.startswith("conv")):
                return operation, output
        names = ", ".join(dict.fromkeys(repr(operation_layer(operation)) for operation, _ in seen))
        if name is None:
            raise UnsupportedModelError(
                "CRP: the network has no convolution, whose channels are the default. Name a layer (layer='...'): "
                f"{names}."
            )
        raise ValueError(f"CRP(layer={name!r}): expected a convolution or linear layer that is called: {names}.")

    def _keep_channels(self, operation: Operation, relevance: Tensor) -> Tensor:
        """Return the relevance of the outputs of the layer, with zeros outside the chosen channels."""
        axis = 1 if operation.called.startswith("conv") or operation.called == "batch_norm" else relevance.ndim - 1
        by_channel = relevance.movedim(axis, 1).flatten(2).sum(2) if relevance.ndim > 2 else relevance
        count = by_channel.shape[1]
        if self.concepts is None:
            chosen = by_channel.argsort(dim=1, descending=True, stable=True)[:, : self.n_concepts]
        elif max(self.concepts) >= count:
            raise ValueError(
                f"CRP(concepts={self.concepts!r}): {operation.where} has {count} channels, expected indices below "
                f"{count}."
            )
        else:
            chosen = torch.tensor(self.concepts, device=relevance.device).expand(len(relevance), -1)
        kept = torch.zeros_like(by_channel, dtype=torch.bool).scatter(1, chosen, value=True)
        shape = [1] * relevance.ndim
        shape[0], shape[axis] = kept.shape
        return torch.where(kept.reshape(shape), relevance, 0.0)
