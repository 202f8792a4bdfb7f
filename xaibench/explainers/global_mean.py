"""Global explanations: the mean of the maps of many images, one map for all images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.types import Output
from xaibench.explainers.api import build
from xaibench.explainers.shared.fitting import iterate_images, not_fitted
from xaibench.registry.info import ExplainerInfo
from xaibench.registry.parameters import Frozen


@ExplainerInfo(
    "Global mean",
    family="Global",
    citation="B. Clark et al.: Correcting misinterpretations of additive models. NeurIPS (2025).",
    passes=0,
)
@dataclass(frozen=True, kw_only=True)
class GlobalMean:
    """The mean of another explainer's maps over training images: the same map for every image.

    It shows which pixels matter in general, where the ground truth is at the same place in every image; what differs
    between images averages out. Clark et al. compare explanations of additive models, which are global, with the means
    of local explanations.

    Attributes:
        of: Registered name, or ``"package.module:name"``, of the explainer whose maps are averaged.
        parameters: Its parameters.
        magnitude: Average magnitudes. Otherwise the mean of signed maps, in which contributions of opposite sign
            cancel; then give a ``target``, because the maps of two classes have opposite signs.
        target: Class that is explained in every training image; None = the class of each image.
        explained: The explained output, as ``output`` of :func:`xaibench.explain`; None = the default of the explainer.
        n_images: Number of training images, from the first one.
        mean: ``[H, W]`` float64, the mean map; ``None`` before :meth:`fit`.
    """

    of: str = "integrated_gradients"
    parameters: Mapping[str, Any] = field(default_factory=Frozen)
    magnitude: bool = True
    target: int | None = None
    explained: Output | None = None
    n_images: int = 1000
    mean: Tensor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("n_images", self.n_images, owner="GlobalMean")
        object.__setattr__(self, "parameters", Frozen(self.parameters))

    @property
    def fitted(self) -> bool:
        """Whether the mean map is known."""
        return self.mean is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Explain training images and average their maps. The mean does not depend on how they are batched.

        Args:
            model: The network.
            loader: Batches of ``(images, masks, targets)`` or ``(images, targets)``, usually the training data. All of
                them are kept in memory if the averaged explainer must be fitted itself.

        Returns:
            This explainer with its mean map.

        Raises:
            TypeError: If a batch does not begin with a floating-point tensor, or has no targets and ``target`` is None.
            ValueError: If the loader is empty.
        """
        from xaibench.explainers.api import explain

        part: Any = build(self.of, **self.parameters)
        if hasattr(part, "fit") and not getattr(part, "fitted", False):
            loader = list(loader)
            part = part.fit(model, loader)
        images, targets = self._first(loader)
        maps = explain(part, model, images, targets, output=self.explained, progress=False).double().cpu()
        return replace(self, mean=(maps.abs() if self.magnitude else maps).mean(0))

    def _first(self, batches: Iterable[Any]) -> tuple[Tensor, Tensor]:
        images: list[Tensor] = []
        targets: list[Tensor] = []
        count = 0
        for batch in batches:
            found = next(iterate_images("GlobalMean", [batch]))
            images.append(found)
            if self.target is not None:
                targets.append(torch.full((len(found),), self.target))
            elif isinstance(batch, tuple | list) and len(batch) > 1:
                targets.append(torch.as_tensor(batch[-1]))
            count += len(found)
            if count >= self.n_images:
                break
        if not images:
            raise ValueError("GlobalMean.fit: the loader yielded no batch, expected at least one.")
        if len(targets) < len(images):
            raise TypeError(
                "GlobalMean.fit: got batches of images without targets, expected (images, masks, targets) or (images, "
                "targets). Or give the class that is explained, GlobalMean(target=0)."
            )
        return torch.cat(images)[: self.n_images], torch.cat(targets)[: self.n_images]

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; only the number of images is used.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was fitted to images of another size.
        """
        if self.mean is None:
            raise not_fitted("GlobalMean", "the training data", "fit(model, batches of (images, masks, targets))")
        if self.mean.shape != images.shape[2:]:
            raise ValueError(
                f"GlobalMean: fitted to images {list(self.mean.shape)}, got images {list(images.shape[2:])}. Fit it to "
                "images of the size that is explained."
            )
        return self.mean.to(images).expand(len(images), *self.mean.shape).clone()
