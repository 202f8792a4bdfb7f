"""XAI-TRIS end to end: generation, training, explaining and scoring, each compared with a literal loop.

    OMP_NUM_THREADS=1 python speed/xaitris.py            # some minutes
    OMP_NUM_THREADS=1 python speed/xaitris.py --quick    # under a minute, coarser

The literal loop does what the papers describe in the usual simple way: samples are generated one by one, batches come
from a ``DataLoader`` of single samples, networks are trained one after another, Captum is called with its defaults
(LIME and Kernel SHAP per sample, as they require), and the earth mover's distance is one call of POT with the full cost
matrix, built once. Both sides use one thread, and processor time is measured. Small measurements are scaled to the
given sizes.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import captum.attr
import numpy as np
import ot
import torch
import torch.nn.functional as F
from captum._utils.models.linear_model import SkLearnLasso
from measuring import command_line, least_seconds, print_head, print_row, train_plainly
from scipy.spatial.distance import cdist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import xaibench as xb
from xaibench.data import Split
from xaibench.models import build, fit, fit_many

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from oracles import tetromino as oracle

#: Sizes of the suite ``xai-tris-8x8`` per data set: samples, epochs, trainings, explained samples.
SAMPLES, EPOCHS, TRAININGS, EXPLAINED = 10_000, 500, 3, 200

METHODS: dict[str, dict[str, Any]] = {
    "saliency": {},
    "integrated_gradients": {},
    "guided_backprop": {},
    "deconvolution": {},
    "deeplift": {"max_pool": "gradient"},
    "gradient_shap": {},
    "deep_shap": {"max_pool": "gradient"},
    "pfi": {"group_size": 50},
    "shapley_sampling": {"n_samples": 25},
    "lime": {"n_samples": 50, "alpha": 0.01},
    "kernel_shap": {"n_samples": 25},
}


class Row(NamedTuple):
    """Processor seconds of one stage, both ways, for the size that its name states."""

    name: str
    literal: float
    ours: float
    bar: float | None = None


def generate(size: int, count: int, few: int) -> Row:
    """LIN with CORR background."""
    white = np.random.default_rng(0).standard_normal((few, size, size))
    shapes = [[oracle.Placed("TL"[i % 2], 1, 0, *oracle.FIXED[size]["TL"[i % 2]])] for i in range(few)]
    literal = least_seconds(lambda: oracle.generate("lin", "corr", size, 0.02, shapes, white)) * count / few
    name = f"xai-tris/lin-corr-{size}x{size}"
    xb.load(name, n_samples=200, workers=1)
    some = min(count, 4_000)
    ours = least_seconds(lambda: xb.load(name, n_samples=some, workers=1), 2) * count / some
    return Row(f"generation, {size}×{size}, {count:,} samples", literal, ours, bar=5 if size == 64 else None)


class Record(Dataset[tuple[torch.Tensor, torch.Tensor, np.ndarray]]):
    """Samples as the published sets hold them: images flat in half precision, masks as numpy floats."""

    def __init__(self, split: Split) -> None:
        self.images, self.targets = split.images.flatten(1).half(), split.targets
        self.masks = split.masks.flatten(1).double().numpy()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
        return self.images[i], self.targets[i], self.masks[i]


def train_literally(model: nn.Module, data: xb.data.Dataset, epochs: int, lr: float) -> None:
    """Train with batches of 512 collated from single samples."""

    def batches(split: Split, *, shuffle: bool) -> Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]:
        loader, shape = DataLoader(Record(split), batch_size=512, shuffle=shuffle), (-1, *split.images.shape[1:])
        return lambda: ((images.float().view(shape), targets) for images, targets, _ in loader)

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.softmax(1), targets)

    train_plainly(model, batches(data.train, shuffle=True), batches(data.val, shuffle=False), loss, epochs, lr)


def train(name: str, data: xb.data.Dataset, epochs: int) -> Row:
    """Three trainings of 500 epochs, from a few epochs of each."""
    shape = tuple(data.train.images.shape[1:])

    def ours() -> None:
        models = [build(name, shape, 2, seed=seed) for seed in range(TRAININGS)]
        splits = [data.train] * TRAININGS, [data.val] * TRAININGS
        fit_many(models, *splits, epochs=10 * epochs, lr=0.004, loss="probabilities", device="cpu", progress=False)

    ours()
    one = least_seconds(lambda: train_literally(build(name, shape, 2, seed=0), data, epochs, 0.004), 2)
    one, three = one * EPOCHS / epochs, least_seconds(ours) / 10 * EPOCHS / epochs
    return Row(f"training, 8×8 {name}, {TRAININGS} × {EPOCHS} epochs", TRAININGS * one, three)


class Probability(nn.Module):
    """The network with its softmax, as the released ones end."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.softmax = model, nn.Softmax(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Probabilities ``[N, K]``."""
        return self.softmax(self.model(images))


def explain_literally(method: str, model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Captum's own class with its defaults, in the precision of the network."""
    f, zeros = Probability(model), torch.zeros_like(images)
    if method in ("lime", "kernel_shap"):
        lasso = SkLearnLasso(alpha=0.01)
        explainer = captum.attr.Lime(f, interpretable_model=lasso) if method == "lime" else captum.attr.KernelShap(f)
        count = METHODS[method]["n_samples"]
        singles = zip(images.split(1), targets.split(1), strict=True)
        return torch.cat([explainer.attribute(image, target=target, n_samples=count) for image, target in singles])
    if method == "pfi":
        explainer = captum.attr.FeaturePermutation(f)
        groups = zip(images.split(50), targets.split(50), strict=True)
        return torch.cat([explainer.attribute(some, target=target) for some, target in groups])
    plain: dict[str, tuple[Any, dict[str, Any]]] = {
        "saliency": (captum.attr.Saliency, {}),
        "integrated_gradients": (captum.attr.IntegratedGradients, {}),
        "guided_backprop": (captum.attr.GuidedBackprop, {}),
        "deconvolution": (captum.attr.Deconvolution, {}),
        "deeplift": (captum.attr.DeepLift, {}),
        "gradient_shap": (captum.attr.GradientShap, {"baselines": zeros}),
        "deep_shap": (captum.attr.DeepLiftShap, {"baselines": zeros[:2]}),
        "shapley_sampling": (captum.attr.ShapleyValueSampling, {"n_samples": 25}),
    }
    kind, parameters = plain[method]
    return kind(f).attribute(images.clone().requires_grad_(), target=targets, **parameters)


def explain(name: str, model: nn.Module, data: xb.data.Dataset, count: int) -> Row:
    """Eleven methods on some test samples."""
    images, _, targets = data.test[:count]
    literal = ours = 0.0
    for method, parameters in METHODS.items():
        few = min(count, 50) if method in ("lime", "kernel_shap") else count
        explain_literally(method, model, images[:2], targets[:2])
        xb.explain(method, model, images[:2], targets[:2], device="cpu", **parameters)
        their_call = functools.partial(explain_literally, method, model, images[:few], targets[:few])
        our_call = functools.partial(xb.explain, method, model, images, targets, device="cpu", **parameters)
        literal += least_seconds(their_call) * EXPLAINED / few
        ours += least_seconds(our_call) * (EXPLAINED / count)
    return Row(f"explaining, 8×8 {name}, {len(METHODS)} methods, {EXPLAINED} samples", literal, ours)


def score_literally(maps: np.ndarray, masks: np.ndarray, cost: np.ndarray) -> None:
    """Both scores of each map: the distance over all pixels, and the share of the largest in the ground truth."""
    for values, mask in zip(np.abs(maps), masks, strict=True):
        ot.lp.emd(values.ravel() / values.sum(), mask.ravel() / mask.sum(), cost, numItermax=10_000_000)
        k = int(mask.sum())
        np.isin(np.argsort(values.ravel())[::-1][:k], np.flatnonzero(mask)).mean()


def score(size: int, maps: torch.Tensor, masks: torch.Tensor, count: int, few: int) -> Row:
    """EMD performance and precision, for as many maps as the methods make of 200 samples at 8×8, or 100 at 64×64."""
    pixels = np.argwhere(np.ones((size, size)))
    cost = cdist(pixels, pixels)
    some, their = maps[:few].double().numpy(), masks[:few].double().numpy()
    score_literally(some[:1], their[:1], cost)
    xb.emd_perf(maps[:2], masks[:2])
    literal = least_seconds(lambda: score_literally(some, their, cost)) * count / few
    ours = least_seconds(lambda: (xb.emd_perf(maps, masks), xb.topk_precision(maps, masks))) * count / len(maps)
    return Row(f"scoring, {size}×{size}, two metrics, {count:,} maps", literal, ours, bar=20 if size == 64 else None)


def maps_of(
    model: nn.Module, data: xb.data.Dataset, methods: list[str], count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps of some methods, none of them all zero, and the masks."""
    images, masks, targets = data.test[:count]
    maps = torch.cat([xb.explain(method, model, images, targets, device="cpu") for method in methods])
    masks = masks.repeat(len(methods), 1, 1)
    there = maps.abs().sum((1, 2)) > 0
    order = torch.randperm(int(there.sum()), generator=torch.Generator().manual_seed(0))
    return maps[there][order], masks[there][order]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples of each")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="\\s*Setting .*hooks")
    print_head("processor seconds of one thread", "literal", "xaibench", "ratio", "bar")

    def show(row: Row) -> Row:
        bar = "" if row.bar is None else f"{row.bar:g}"
        print_row(row.name, f"{row.literal:.2f}", f"{row.ours:.2f}", f"{row.literal / row.ours:.1f}", bar)
        return row

    show(generate(64, 40_000, 100 if quick else 400))
    data = xb.load("xai-tris/lin-white-8x8")
    pipeline = [show(generate(8, SAMPLES, 1_000))]
    methods = ["saliency", "integrated_gradients", "gradient_shap", "input_x_gradient", "uniform"]
    for name in ("mlp", "cnn"):
        pipeline.append(show(train(name, data, 1 if quick else 3)))
        model = build(name, (1, 8, 8), 2, seed=1)
        fit(model, data.train, data.val, epochs=30, lr=0.004, device="cpu", progress=False)
        pipeline.append(show(explain(name, model, data, 50 if quick else EXPLAINED)))
        maps, masks = maps_of(model, data, methods, 100)
        pipeline.append(show(score(8, maps, masks, len(METHODS) * EXPLAINED, 200)))
    large = xb.load("xai-tris/lin-white-64x64", n_samples=1_000)
    model = build("mlp", (1, 64, 64), 2, seed=0)
    fit(model, large.train, large.val, epochs=2, lr=0.0005, device="cpu", progress=False)
    maps, masks = maps_of(model, large, methods, 2 if quick else 4)
    show(score(64, maps, masks, len(METHODS) * 100, 1 if quick else 5))
    literal, ours = (sum(seconds) for seconds in list(zip(*pipeline, strict=True))[1:3])
    show(Row("whole 8×8 pipeline: one data set, MLP and CNN", literal, ours, bar=10))


if __name__ == "__main__":
    main()
