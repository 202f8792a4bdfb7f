import captum.metrics
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import perturbation, robustness
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics.faithfulness.infidelity import infidelity
from xaibench.metrics.shared.model_scores import random_generator


def without_disturbance(trial):
    """A zero map; and where squares are few, maybe none that met the map."""
    few = trial.parameters["perturbation"] == "square" and trial.parameters["n_samples"] < 16
    return [not one.any() or (few and np.isnan(score)) for one, score in zip(trial.maps, trial.scores, strict=True)]


CASES = {
    "infidelity": MetricCase(
        quick={"n_samples": 20},
        drawn={
            "perturbation": st.sampled_from(["square", "gaussian"]),
            "n_samples": st.integers(1, 20),
            "noise_std": st.floats(1e-3, 1e3),
            "seed": st.integers(0, 5),
        },
        takes_magnitude=None,  # the best scale undoes the sign as well
        undefined=without_disturbance,
    )
}


@pytest.fixture(scope="module")
def case():
    images, maps, targets = batch(n=4, size=(9, 8))
    return small_cnn().double(), images.double(), maps.double(), targets


def test_all_squares_as_the_authors_take_them(case):
    model, images, maps, targets = case
    fields = robustness.all_squares(9, 8)
    assert len(fields) == 72 + 56 + 42
    scores = infidelity(model, images, maps, targets, n_samples=170, reduction="none")
    for score, image, one, target in zip(scores, images, maps, targets, strict=True):
        whole = perturbation.probability(model, image, target)
        falls = [whole - perturbation.probability(model, image * torch.from_numpy(1 - f), target) for f in fields]
        dots = [float((one.numpy() * field).sum()) for field in fields]
        assert score == pytest.approx(robustness.infidelity(dots, falls), rel=1e-9)
    assert torch.equal(infidelity(model, images, maps, targets, n_samples=10**6, reduction="none"), scores)


@pytest.mark.parametrize("perturbation", ["square", "gaussian"])
def test_the_model_is_asked_once_for_all_maps(case, perturbation):
    model, images, maps, targets = case
    rows, once = [], infidelity.info.shared_scores
    settings = {"perturbation": perturbation, "n_samples": 9, "seed": 2}

    def counted(images):
        rows.append(len(images))
        return model(images)

    answers = once.ask(counted, images, targets, **settings)
    assert sum(rows) == 4 + len(images) * 10  # the first four check what the model returns
    for some in (maps, maps.flip(2)):
        found = once.score(answers, some, **settings, reduction="none")
        assert torch.equal(found, infidelity(model, images, some, targets, **settings, reduction="none"))
    assert sum(rows) == 4 + len(images) * 10


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kind", ["gaussian", "square"])
def test_captum_agrees(case, kind, normalize):
    model, images, maps, targets = case
    n = 12
    if kind == "gaussian":
        fields = torch.stack([torch.from_numpy(0.3 * random_generator(5, i).standard_normal((9, 8))) for i in range(n)])
    else:
        squares = robustness.all_squares(9, 8)
        chosen = random_generator(5, 0).choice(len(squares), n, replace=False)
        fields = torch.from_numpy(np.stack([squares[i] for i in chosen]))

    def disturb(inputs, baselines=None):
        # Captum repeats each image n times in a row. The map stands in one channel only: so does the disturbance.
        field = fields.repeat(len(images), 1, 1)[:, None]
        moved = inputs - field if kind == "gaussian" else inputs * (1 - field)
        return torch.cat([field, torch.zeros_like(field)], 1), moved

    captums = captum.metrics.infidelity(
        lambda x: model(x).softmax(1),
        disturb,
        images,
        torch.stack([maps, torch.zeros_like(maps)], 1),
        target=targets,
        n_perturb_samples=n,
        normalize=normalize,
    )
    settings = {"perturbation": kind, "noise_std": 0.3, "n_samples": n, "seed": 5, "rescale": normalize}
    ours = infidelity(model, images, maps, targets, reduction="none", **settings)
    np.testing.assert_allclose(ours, captums.detach(), rtol=1e-6, atol=1e-12)


def test_the_gradient_of_a_linear_model_has_none():
    weight = torch.randn(3, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = lambda images: torch.einsum("nchw,kchw->nk", images, weight)  # noqa: E731
    images, targets = torch.randn(3, 2, 5, 5, dtype=torch.float64), torch.arange(3)
    settings = {"output": "logit", "rescale": False, "reduction": "none"}
    slopes, shares = weight.sum(1), (weight * images).sum(1)
    noisy = infidelity(model, images, slopes, targets, perturbation="gaussian", n_samples=20, **settings)
    np.testing.assert_allclose(noisy, 0, atol=1e-20)
    squares = infidelity(model, images, shares, targets, **settings)
    np.testing.assert_allclose(squares, 0, atol=1e-20)
    # Each kind of map is wrong for the other kind of disturbance.
    assert (infidelity(model, images, slopes, targets, **settings) > 0.1).all()
    assert (infidelity(model, images, 2 * shares, targets, **settings) > 0.1).all()


def test_the_best_scale_is_the_best(case):
    model, images, maps, targets = case
    best = infidelity(model, images, maps, targets, reduction="none")
    for scale in (-1.0, -0.01, 0.0, 0.01, 1.0):
        other = infidelity(model, images, maps * scale, targets, rescale=False, reduction="none")
        assert (best <= other + 1e-12).all()


def test_extreme_maps(case):
    model, images, maps, targets = case
    expected = infidelity(model, images, maps, targets, reduction="none")
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(
            infidelity(model, images, maps * scale, targets, reduction="none"), expected, rtol=1e-9
        )
    assert infidelity(model, images, maps, targets, seed=1, n_samples=10) != infidelity(
        model, images, maps, targets, n_samples=10
    )


def test_a_map_of_which_only_tiny_values_are_met_keeps_its_score():
    # Squares of what the disturbances predict would vanish beside the largest value, and beta become infinite.
    chosen = random_generator(0, 0).choice(16, 11, replace=False)
    missed = next(pixel for pixel in range(16) if pixel not in chosen)
    maps = np.ones((1, 4, 4))
    maps.flat[missed] = 6.4e161
    images, targets = np.ones((1, 1, 4, 4), np.float32), np.array([0])
    model = lambda x: torch.stack([x.sum((1, 2, 3)), x[:, 0, 0, 0] * 2], 1)  # noqa: E731
    score = infidelity(model, images, maps, targets, n_samples=11)
    assert score == pytest.approx(infidelity(model, images, np.ones((1, 4, 4)), targets, n_samples=11), rel=1e-9)
    assert 0 <= infidelity(model, images, maps, targets, n_samples=11, perturbation="gaussian") <= 1


def test_captum_expansion_cancels_and_ours_does_not():
    # Captum sums the squares of the expanded difference: of a map that is right the error is what rounding leaves,
    # negative as well. Here no error is negative, and a right map's is zero to the precision of the scores.
    weight = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e6
    model = lambda images: (images[:, 0] * weight).sum((1, 2))[:, None].expand(-1, 2)  # noqa: E731
    images, targets = torch.ones(1, 1, 4, 4, dtype=torch.float64), torch.tensor([0])
    score = infidelity(model, images, weight[None], targets, output="logit")
    assert 0 <= score < 1e-18 * 1e12


def test_without_the_best_scale_the_units_count(case):
    model, images, maps, targets = case
    settings = {"rescale": False, "reduction": "none"}
    one = infidelity(model, images, maps, targets, **settings)
    two = infidelity(model, images, 2 * maps, targets, **settings)
    assert (one != two).all()
    # A zero map predicts nothing, which is a prediction here: the mean square of the falls.
    assert infidelity(model, images, 0 * maps, targets, **settings).isfinite().all()
