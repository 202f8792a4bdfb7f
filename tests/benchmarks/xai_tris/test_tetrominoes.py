import dataclasses
import itertools

import numpy as np
import pytest
import torch
from oracles import tetromino as oracle
from part_cases import DatasetCase
from refusals import refused
from threadpoolctl import threadpool_limits

from xaibench.benchmarks.checksums import checksum, published_checksum
from xaibench.benchmarks.xai_tris.noise import fill_noise, layout_rng
from xaibench.benchmarks.xai_tris.patterns import SIGNS, Patterns
from xaibench.benchmarks.xai_tris.published_accuracy import PAPER, paper_accuracy, paper_alpha
from xaibench.benchmarks.xai_tris.shapes import fixed_placements
from xaibench.benchmarks.xai_tris.tetrominoes import Tetromino
from xaibench.data import DATASETS, load
from xaibench.data.disk.splits import stratified_split

CELLS = list(itertools.product(("lin", "mult", "rigid", "xor"), ("white", "corr"), (8, 64)))
SPLITS = ("train", "val", "test")


def small(background):
    """Parameters of a small set: enough samples for whole strata in each of its splits."""

    def parameters(photographs, cache):
        images = {"images_dir": photographs, "cache_dir": cache, "alpha": 0.5} if background == "imagenet" else {}
        return {"n_samples": 40, "split": (0.6, 0.2, 0.2), **images}

    return parameters


CASES = {name: DatasetCase(small=small(name.split("-")[2])) for name in DATASETS if name.startswith("xai-tris/")}


def whole(dataset):
    """All samples in the order they were generated in."""
    splits = [getattr(dataset, name) for name in SPLITS]
    return tuple(torch.cat([getattr(split, part) for split in splits]) for part in ("images", "masks", "targets"))


def same_bits(one, other):
    return all(torch.equal(a, b) for a, b in zip(whole(one), whole(other), strict=True))


def fixed_shapes(size, layout):
    """T and L of a layout, whose placements are in cells."""
    cell = oracle.cell_size("lin", size)
    placements = zip("TL", fixed_placements(layout), strict=True)
    return [oracle.Placed(letter, 1, turns, row * cell, column * cell) for letter, (turns, (row, column)) in placements]


def shapes_shown(patterns, kind, layout=0):
    scenario, size = patterns.scenario, patterns.size
    fixed = fixed_shapes(size, layout) if layout else oracle.fixed_shapes(size)
    if scenario == "rigid":
        shape, placement = divmod(kind, len(patterns.placements))
        turns, corner = patterns.placements[placement]
        return [oracle.Placed("TL"[shape], 1, turns, *corner)]
    if scenario == "xor":
        return [dataclasses.replace(placed, sign=sign) for placed, sign in zip(fixed, SIGNS[kind], strict=True)]
    return [fixed[kind]]


@pytest.mark.parametrize("layout", [0, 2, 1_234_567_890])
@pytest.mark.parametrize(("scenario", "background", "size"), CELLS)
def test_a_set_is_the_oracles(scenario, background, size, layout):
    seed, count, alpha = 3, 80 if size == 64 else 200, 0.3
    how = {"n_samples": count, "alpha": alpha, "split": (0.6, 0.2, 0.2), "layout": layout}
    dataset = Tetromino(scenario, background, size)(seed=seed, **how)

    patterns, rng = Patterns(scenario, size), layout_rng(seed)
    cases = np.arange(count) % patterns.cases
    cases = cases[np.concatenate(stratified_split(cases, (0.6, 0.2, 0.2), rng))]
    shown = [shapes_shown(patterns, int(kind), layout) for kind in patterns.draw(cases, rng)]
    white = np.empty((count, size, size), dtype=np.float32)
    fill_noise("white", seed, 0, white)
    expected, truth = oracle.generate(
        scenario, background, size, alpha, shown, white, fixed_shapes(size, layout) if layout else None
    )

    images, masks, targets = whole(dataset)
    np.testing.assert_allclose(images[:, 0].numpy(), expected, atol=2e-6)
    np.testing.assert_array_equal(masks.numpy(), truth)
    # The class, read off what lies in the image.
    if scenario == "xor":
        assert targets.tolist() == [int(a.sign != b.sign) for a, b in shown]
    else:
        assert targets.tolist() == ["TL".index(shape.letter) for (shape,) in shown]


@pytest.mark.parametrize("name", ["lin-white-8x8", "mult-corr-8x8", "xor-white-8x8", "rigid-corr-8x8"])
def test_layout_0_is_the_published_set(name):
    default, explicit = load(f"xai-tris/{name}"), load(f"xai-tris/{name}", layout=0)
    assert explicit.parameters == default.parameters
    assert repr(explicit) == repr(default)
    assert "layout" not in repr(default)
    assert checksum(explicit) == checksum(default) == published_checksum(explicit)


@pytest.mark.parametrize("name", ["lin-white-8x8", "mult-corr-8x8", "xor-corr-64x64"])
def test_another_layout_is_another_set_with_the_same_split(name):
    paper, moved, other = (load(f"xai-tris/{name}", n_samples=200, layout=layout) for layout in (0, 1, 2))
    assert moved.parameters == paper.parameters | {"layout": 1}
    assert repr(moved).endswith("layout=1)")
    assert published_checksum(moved) is None
    for (images, masks, targets), (images2, masks2, targets2) in itertools.combinations(
        map(whole, (paper, moved, other)), 2
    ):
        assert torch.equal(targets, targets2)
        assert not torch.equal(masks, masks2)
        assert not torch.equal(images, images2)


def test_a_layout_changes_nothing_in_rigid():
    paper, moved = (load("xai-tris/rigid-corr-8x8", n_samples=200, layout=layout) for layout in (0, 5))
    assert same_bits(paper, moved)
    assert moved.parameters == paper.parameters


@pytest.mark.parametrize("name", ["lin-corr-8x8", "rigid-corr-64x64", "xor-white-64x64", "mult-corr-64x64"])
def test_the_bits_depend_on_nothing_but_the_parameters(name):
    def make(**how):
        return load(f"xai-tris/{name}", seed=5, n_samples=520, **how)

    reference = make(workers=1, chunk_size=1)
    for workers, chunk_size in [(1, 300), (1, 10_000), (2, 1), (5, 256)]:
        assert same_bits(reference, make(workers=workers, chunk_size=chunk_size)), (workers, chunk_size)
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert same_bits(reference, make()), f"{threads} threads of the linear algebra"
    assert not same_bits(reference, load(f"xai-tris/{name}", seed=6, n_samples=520))


@pytest.mark.parametrize("scenario", ["lin", "mult", "rigid", "xor"])
@pytest.mark.parametrize("background", ["white", "corr"])
def test_defaults_are_the_papers(scenario, background):
    dataset = load(f"xai-tris/{scenario}-{background}-8x8")
    assert [len(getattr(dataset, name)) for name in SPLITS] == [8000, 1000, 1000]
    assert dataset.parameters["alpha"] == paper_alpha(scenario, background, 8)
    assert dataset.batch_size == 512
    images, masks, _ = whole(dataset)
    assert images.dtype == torch.float32
    assert images.abs().max() == 1
    assert (masks.sum(dim=(1, 2)) == (4 if scenario == "rigid" else 8)).all()
    for name in SPLITS:
        assert getattr(dataset, name).targets.float().mean() == 0.5


def test_xors_sign_pairs_are_equally_frequent_in_every_split():
    dataset = load("xai-tris/xor-white-8x8", n_samples=4000, alpha=1.0)
    for name in SPLITS:
        images = getattr(dataset, name).images[:, 0]
        pairs = torch.stack([images[:, 1, 1].sign(), images[:, 4, 5].sign()], dim=1)
        kinds, counts = pairs.unique(dim=0, return_counts=True)
        assert len(kinds) == 4
        assert (counts == len(images) // 4).all()


def test_signal_and_noise_have_the_norms_that_alpha_says():
    # Same seed, same noise: the set is alpha * signal + (1 - alpha) * noise up to one factor.
    parts = {}
    for alpha in (0.0, 0.25, 1.0):
        images, masks, _ = whole(load("xai-tris/lin-white-8x8", n_samples=2000, alpha=alpha))
        parts[alpha] = images.double().flatten()
    noise, mixed, signal = (part / part.norm() for part in parts.values())
    expected = 0.25 * signal + 0.75 * noise
    torch.testing.assert_close(mixed, expected / expected.norm(), atol=1e-6, rtol=0)
    shown = whole(load("xai-tris/lin-white-8x8", n_samples=2000, alpha=1.0))[0][:, 0] != 0
    assert (shown <= masks).all()
    assert (shown.sum(dim=(1, 2)) == 4).all()


def test_corr_correlates_neighbors_and_white_does_not():
    for background, low, high in (("white", -0.02, 0.02), ("corr", 0.9, 1.0)):
        images, _, _ = whole(load(f"xai-tris/lin-{background}-64x64", n_samples=300, alpha=0.0))
        images = images[:, 0].double()
        left, right = images[:, :, :-1].flatten(), images[:, :, 1:].flatten()
        assert low < torch.corrcoef(torch.stack([left, right]))[0, 1] < high


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 1.01}, "alpha="),
        ({"alpha": -0.1}, "alpha="),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"seed": -1}, "seed="),
        ({"n_samples": 0}, "n_samples="),
        ({"n_samples": 2.5}, "n_samples="),
        ({"n_samples": 4}, "4 samples"),
        ({"layout": -1}, "layout="),
        ({"layout": 1.5}, "layout="),
        ({"workers": 0}, "workers="),
        ({"chunk_size": 0}, "chunk_size="),
        ({"split": (0.5, 0.1, 0.1)}, "fractions"),
        ({"images_dir": "."}, "images_dir="),
    ],
)
def test_bad_parameters(parameters, message):
    refused(ValueError, message, lambda: load("xai-tris/lin-white-8x8", **parameters))


def test_imagenet_asks_for_what_it_needs():
    refused(ValueError, "images_dir=", lambda: load("xai-tris/lin-imagenet-64x64"))
    refused(ValueError, "alpha=", lambda: load("xai-tris/lin-imagenet-8x8", images_dir="."))


def test_the_papers_table():
    assert len(PAPER) == 20
    assert paper_alpha("rigid", "imagenet", 64) == 0.6
    assert paper_accuracy("mult", "white", 8, "cnn") == 83.1
    assert paper_accuracy("mult", "white", 8, "llr") is None
    assert paper_alpha("mult", "imagenet", 8) is None
    for (scenario, _, _), cell in PAPER.items():
        assert cell.keys() - {"alpha"} == ({"llr", "mlp", "cnn"} if scenario == "lin" else {"mlp", "cnn"})


def test_published_accuracy_is_that_of_the_published_parameters():
    dataset = Tetromino("rigid", "corr", 8)
    alpha = paper_alpha("rigid", "corr", 8)
    assert dataset.published_accuracy("cnn", {"alpha": alpha}) == paper_accuracy("rigid", "corr", 8, "cnn")
    assert dataset.published_accuracy("llr", {"alpha": alpha}) is None
    assert dataset.published_accuracy("cnn", {"alpha": alpha / 2}) is None
    assert dataset.published_accuracy("cnn", {"alpha": alpha, "layout": 1}) is None
