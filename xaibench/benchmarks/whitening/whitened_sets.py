"""Any registered data set of small images with a whitening applied: ``xb.load("whitened:sphering:NAME")``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, get_args

from xaibench.core.messages import unknown
from xaibench.data.base import Dataset
from xaibench.data.registered import DATASETS
from xaibench.data.whitening import Whitening, whiten
from xaibench.registry.info import DatasetInfo
from xaibench.registry.table import UnknownNameError


@dataclass(frozen=True)
class WhitenedSet:
    """A data set whose images are whitened: ``xb.load("whitened:sphering:xai-tris/lin-corr-8x8")``.

    The covariance is that of the training images. Afterwards, all images are divided by the largest absolute value of
    the set, as in XAI-TRIS: residuals of partial regression can be a millionth of the original pixels. Masks are those
    of the data set. Eigenvalues are computed by LAPACK, so that images differ between machines in their last bits.

    Attributes:
        name: The whitening (:mod:`xaibench.data.whitening`), a colon, and the name of the data set.

    Raises:
        UnknownNameError: If there is no such whitening or data set.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("whitened:cholesky:xai-tris/lin-corr-8x8", seed=0, n_samples=400)
        >>> data.info.subset, data.info.variant
        ('lin', 'corr-cholesky')
    """

    name: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(Whitening):
            raise UnknownNameError(unknown("'whitened:KIND:NAME' has no whitening", self.kind, [*get_args(Whitening)]))

    @property
    def kind(self) -> str:
        """The whitening."""
        return self.name.partition(":")[0]

    @cached_property
    def original(self) -> Any:
        """The data set that is whitened."""
        return DATASETS.resolve(self.name.partition(":")[2])

    @property
    def info(self) -> DatasetInfo:
        """Info record: that of the data set, with the whitening in the name and the variant."""
        info = cast(DatasetInfo, self.original.info)
        return dataclasses.replace(
            info, name=f"whitened:{self.name}", variant=f"{info.variant}-{self.kind}", known_distribution=False
        )

    def __call__(self, **parameters: Any) -> Dataset:
        """Make the data set and whiten it.

        Args:
            **parameters: Parameters of the original data set.

        Returns:
            The data set with whitened images ``[N, C, H, W]`` in [−1, 1]; see :func:`xaibench.data.whiten`.
        """
        data = whiten(self.original(**parameters), cast(Whitening, self.kind))
        splits = (data.train, data.val, data.test)
        largest = max(float(split.images.abs().max()) for split in splits if len(split))
        train, val, test = (split.with_images(split.images / largest) for split in splits)
        return dataclasses.replace(data, train=train, val=val, test=test, info=self.info)
