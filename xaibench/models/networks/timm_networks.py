"""Networks of timm, by name ``"timm:<name>"``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from xaibench.models.networks.class_folding import Groups, Weighting, fold_classes
from xaibench.models.networks.pretrained import Classifier, HeadChoice, check_request, load_state
from xaibench.models.networks.pretrained_weights import WeightsNotFoundError, is_file, read_weights, unknown_weights
from xaibench.registry.info import ModelInfo

_CITATION = "Wightman: PyTorch Image Models (timm). doi:10.5281/zenodo.4414861"


@dataclass(frozen=True)
class Timm:
    """A network of timm, called as ``(in_shape, num_classes) -> nn.Module``.

    Attributes:
        name: Its name in timm, with or without the tag of the weights: ``"resnet18"``, ``"resnet18.a1_in1k"``.
    """

    name: str

    @property
    def info(self) -> ModelInfo:
        """Metadata for tables."""
        return ModelInfo(f"{self.name} (timm)", citation=_CITATION)

    def __call__(
        self,
        in_shape: tuple[int, ...],
        num_classes: int,
        *,
        weights: str | os.PathLike[str] | None = "pretrained",
        head: HeadChoice = "new",
        fold: str | Groups | None = None,
        weighting: Weighting = "mean",
    ) -> nn.Module:
        """Build the network, in evaluation mode, with the normalization that its weights were trained with.

        Args:
            in_shape: ``(3, H, W)``; networks with a fixed image size are built for this one.
            num_classes: Number of logits.
            weights: ``"pretrained"``: timm's, from its cache or downloaded; a path; None: random.
            head: ``"new"``, for ``num_classes``, or ``"pretrained"``, which must have ``num_classes`` outputs.
            fold: Groups of the pretrained classes, see :class:`xaibench.models.Folded`.
            weighting: Weighting of the groups, see :class:`xaibench.models.Folded`.

        Returns:
            From images ``[N, 3, H, W]`` in [0, 1] to logits ``[N, num_classes]``, on the CPU.

        Raises:
            ModuleNotFoundError: If timm is not installed; names the command.
            WeightsNotFoundError: If the weights are not here and cannot be downloaded; names the file and where to put
                it.
            ValueError: If timm has no such network, or shapes, classes, weights or head do not fit each other.
        """
        label = f"timm:{self.name}"
        check_request(label, in_shape, num_classes, head)
        if weights is not None and weights != "pretrained" and not is_file(weights):
            raise ValueError(unknown_weights(label, weights, ["pretrained"]))
        config = self.config()
        keep = fold is not None or head == "pretrained"
        state = read_weights(weights) if weights is not None and is_file(weights) else None
        outputs = _count_outputs(config, state) if keep else num_classes
        size = {"img_size": in_shape[1:]} if config.get("fixed_input_size") else {}
        network = self._network(config, pretrained=weights == "pretrained", num_classes=outputs, **size)
        if state is not None:
            if not keep:  # the last layer of the weights has other classes
                built = network.state_dict()
                heads = _head_prefixes(config)
                state = {key: value for key, value in state.items() if not key.startswith(heads)}
                state |= {key: value for key, value in built.items() if key.startswith(heads)}
            load_state(network, state, f"{label}: weights={str(weights)!r}", head="pretrained")
        if keep and fold is None and outputs != num_classes:
            raise ValueError(
                f"{label}: head='pretrained' has {outputs} outputs, but num_classes is {num_classes}. Take head='new' "
                "and train it (xaibench.models.fit_head), or fold the classes."
            )
        model = Classifier(network, config["mean"], config["std"])
        return fold_classes(model, fold, weighting, num_classes, label).eval()

    def config(self) -> dict[str, Any]:
        """Return timm's configuration of the network.

        Returns:
            Mean, std, size, classes, and where the weights are, by timm's names.

        Raises:
            ModuleNotFoundError: If timm is not installed; names the command.
            ValueError: If timm has no such network.
        """
        timm = import_timm()
        config = None
        if timm.is_model(self.name):
            with contextlib.suppress(RuntimeError):  # no weights of that tag
                config = timm.get_pretrained_cfg(self.name, allow_unregistered=False)
        if config is None:
            near = timm.list_models(f"*{self.name.partition('.')[0]}*")[:3]
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise ValueError(f"The library timm has no network {self.name!r}{hint}. timm.list_models() lists all.")
        settings: dict[str, Any] = config.to_dict()
        return settings

    def _network(self, config: dict[str, Any], *, pretrained: bool, **parameters: Any) -> nn.Module:
        timm = import_timm()
        if not pretrained:
            network: nn.Module = timm.create_model(self.name, pretrained=False, **parameters)
            return network
        try:
            network = timm.create_model(self.name, pretrained=True, **parameters)
        except Exception as error:  # the hub's client raises different errors without a network, by version
            origin = config.get("hf_hub_id") or config.get("url")
            if not origin:
                raise WeightsNotFoundError(
                    f"The library timm has no weights for {self.name!r}; weights=None builds it with random ones."
                ) from error
            raise WeightsNotFoundError(
                f"timm:{self.name}: the weights are not on this machine and cannot be downloaded "
                f"({type(error).__name__}). Where there is a network, fetch model.safetensors of {origin!r} from the "
                "Hugging Face hub, and pass weights='/path/to/model.safetensors', or bring the hub's cache folder "
                "(HF_HOME) along. weights=None builds the network with random weights."
            ) from error
        return network


def _head_prefixes(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the prefixes of the last layer's weight names (some networks have two last layers)."""
    heads = config.get("classifier") or ()
    return tuple(f"{name}." for name in ((heads,) if isinstance(heads, str) else heads))


def _count_outputs(config: dict[str, Any], state: Mapping[str, Tensor] | None) -> int:
    """Return the number of classes of the pretrained last layer."""
    for prefix in _head_prefixes(config):
        if state is not None and f"{prefix}weight" in state:
            return len(state[f"{prefix}weight"])
    return int(config["num_classes"])


def import_timm() -> Any:
    """Import timm.

    Raises:
        ModuleNotFoundError: If it is not installed; names the command.
    """
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise ModuleNotFoundError(
            "Networks 'timm:<name>' need timm: pip install \"xaibench[timm]\".", name="timm"
        ) from error
    return timm
