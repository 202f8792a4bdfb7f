"""What the images of the generated sets came from: against the images, and against the textbook's formulas."""

import numpy as np
import pytest
from oracles.redrawing import conditional_draws, marginal_draws

from xaibench.benchmarks.xai_tris.pattern_mixture import PatternMixture
from xaibench.data import DATASETS, load

GENERATED = [f"{scenario}-{ground}" for scenario in ("lin", "mult", "rigid", "xor") for ground in ("white", "corr")]


def known_of(name, count=100):
    data = load(f"xai-tris/{name}-8x8", seed=3, n_samples=2000)
    known = data.distribution()
    images = data.train.images[:count].numpy().astype(np.float64)
    seen = known._observe(images)
    logs = np.log(known._scales).reshape(len(known.shares), -1).sum(axis=1)
    return data, known, seen, (seen.square / 2 + logs).argmin(axis=1)  # the pattern that is likeliest


@pytest.mark.parametrize("name", GENERATED)
def test_the_images_of_a_set_are_drawn_from_it(name):
    """Without its pattern an image is, once whitened, standard normal along every direction: along those that the
    smoothing leaves nothing of, too, where it is float32's rounding."""
    few = name.startswith("rigid")  # of 336 patterns each image is held against all
    _, known, seen, own = known_of(name, count=100 if few else 800)
    vectors, values, rounding = known._spectrum
    scaled = np.take_along_axis(seen.scaled, own[:, None, None], axis=1).reshape(-1, 8, 8)
    variance = ((vectors.T @ scaled @ vectors) ** 2 / (np.outer(values, values) + rounding)).mean(axis=0)
    assert np.median(variance) == pytest.approx(1, abs=0.1)
    assert 0.5 < variance.min() < variance.max() < (1.8 if few else 1.4)


@pytest.mark.parametrize(("name", "most"), [("lin-white", 0.86), ("lin-corr", 1), ("xor-corr", 1), ("rigid-corr", 1)])
def test_the_likeliest_pattern_is_that_of_the_class(name, most):
    data, known, _, own = known_of(name)
    classes = own // (len(known.shares) // 2)
    assert (classes == data.train.targets[:100].numpy()).mean() >= most


def test_who_knows_what_the_images_came_from_says_so():
    for name in (name for name in DATASETS if name.startswith("xai-tris/")):
        known = "imagenet" not in name and ("rigid" not in name or name.endswith("-8x8"))
        assert DATASETS.resolve(name).info.known_distribution == known
    assert load("xai-tris/lin-white-8x8", n_samples=20).distribution is not None
    assert load("xai-tris/rigid-white-64x64", n_samples=20).distribution is None


def small_mixture(kind, seed=0):
    """Three patterns on 3×3 images, and their means and covariances written out."""
    rng = np.random.default_rng(seed)
    smoothing = np.eye(3) if kind == "white" else np.array([[0.8, 0.3, 0.1], [0.3, 0.6, 0.3], [0.1, 0.3, 0.8]])
    means, scales = rng.normal(size=(3, 3, 3)), rng.uniform(0.5, 1.5, size=(3, 3, 3))
    shares = np.array([0.5, 0.3, 0.2])
    noise = np.kron(smoothing @ smoothing.T, smoothing @ smoothing.T)
    flat = scales.reshape(3, -1)
    written = {"means": means.reshape(3, -1), "covariances": flat[:, :, None] * noise * flat[:, None], "shares": shares}
    return PatternMixture(means, scales, smoothing, shares), written


BLOCKS = {"pixel": [4], "row": [0, 1, 2], "five": [0, 2, 4, 6, 8], "all": list(range(9))}


@pytest.mark.parametrize("kind", ["white", "corr"])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("given_others", [True, False])
def test_redrawn_blocks_have_the_distribution_of_the_textbook(kind, block, given_others):
    known, written = small_mixture(kind)
    places, count = np.array(BLOCKS[block]), 4000
    image = np.random.default_rng(1).normal(size=9)
    rng = np.random.default_rng(2)
    uniform = rng.random((1, count, 1 + len(places)))
    (found,) = known.redrawn(image.reshape(1, 1, 3, 3), [places], [uniform], given_others=given_others)
    draw = conditional_draws if given_others else marginal_draws
    expected = draw(image, places, count=count, rng=rng, **written)
    for each in (lambda x: x, lambda x: x**2, lambda x: x * x[:, :1], lambda x: np.abs(x - image[places])):
        one, other = each(found[0]), each(expected)
        error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / count)
        assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4.5 * error).all()


def test_of_correlated_noise_a_pixel_is_known_to_its_rounding_and_a_quarter_is_not():
    data = load("xai-tris/lin-corr-8x8", n_samples=200)
    images = data.test.images[:5].numpy()
    places = np.arange(64).reshape(8, 8)
    blocks = [places[3:4, 3:4].ravel(), places[:4, :4].ravel(), places.ravel()]
    rng = np.random.default_rng(0)
    uniform = [rng.random((5, 50, 1 + len(block))) for block in blocks]
    found = data.distribution().redrawn(images, blocks, uniform, given_others=True)
    flat = images.reshape(5, 1, 64)
    moved = [np.abs(drawn - flat[..., block]).mean() for drawn, block in zip(found, blocks, strict=True)]
    assert moved[0] < 1e-7
    assert 1e-7 < moved[1] < 1e-2
    assert moved[2] > 0.1


def test_a_pixel_that_a_pattern_blots_out_is_drawn_again_as_it_is():
    data = load("xai-tris/mult-white-8x8", n_samples=200, alpha=1.0)
    known, rng = data.distribution(), np.random.default_rng(0)
    places = [np.array([place]) for place in range(64)]
    images = data.test.images[:5].numpy()
    drawn = list(known.redrawn(images, places, [rng.random((5, 3, 2)) for _ in places], given_others=True))
    blotted = (known.scales == 0).reshape(2, 64)
    targets = data.test.targets[:5].numpy()
    assert np.isfinite(np.stack(drawn)).all()
    for place in np.flatnonzero(blotted.any(axis=0)):
        gone = blotted[targets, place]
        assert (drawn[place][gone] == 0).all()
        assert (drawn[place][~gone] != 0).all()
