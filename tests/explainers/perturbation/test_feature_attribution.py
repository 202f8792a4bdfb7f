import captum.attr
import pytest
import torch
from oracles import explainers as oracle

from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.explainers.perturbation.feature_attribution import find_features
from xaibench.explainers.perturbation.surrogate import default_samples

NAMES = ["pfi", "shapley_sampling", "kernel_shap", "lime"]
FEW = {"kernel_shap": {"n_samples": 40}, "lime": {"n_samples": 40, "alpha": 1e-6}, "shapley_sampling": {"n_samples": 3}}


def few(name):
    return FEW.get(name, {})


@pytest.fixture
def grid():
    """Four by four cells of two pixels."""
    cells = torch.arange(16).reshape(4, 4)
    return cells.repeat_interleave(2, 0).repeat_interleave(2, 1)


@pytest.fixture
def photos():
    return torch.rand(7, 3, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", NAMES)
def test_the_grid_is_the_mask_of_its_cells(name, rgb_cnn, photos, targets, grid):
    maps = explain(name, rgb_cnn, photos, targets, feature_mask="grid", cell_size=2, **few(name))
    assert maps.abs().max() > 0
    assert maps.equal(maps[:, ::2, ::2].repeat_interleave(2, 1).repeat_interleave(2, 2))
    own = (grid * 7 - 3, grid[None].expand(7, -1, -1), grid[None, None].expand(-1, 3, -1, -1))
    for mask in own[:2]:
        assert explain(name, rgb_cnn, photos, targets, feature_mask=mask, **few(name)).allclose(maps, atol=1e-12)
    by_channel = explain(name, rgb_cnn, photos, targets, feature_mask=own[2], **few(name))
    torch.testing.assert_close(by_channel, 3 * maps)  # a mask with channels is summed over them


@pytest.mark.parametrize("name", NAMES)
def test_features_of_one_value_are_no_mask(name, cnn, images, targets):
    mask = torch.arange(64).reshape(8, 8)
    maps = explain(name, cnn, images, targets, feature_mask=mask, **few(name))
    assert maps.equal(explain(name, cnn, images, targets, **few(name)))


@pytest.mark.parametrize(
    ("name", "method"),
    [("pfi", captum.attr.FeaturePermutation), ("shapley_sampling", captum.attr.ShapleyValueSampling)],
)
def test_masks_agree_with_captum(name, method, cnn, images, targets, grid):
    maps = explain(name, cnn, images, targets, feature_mask=grid, seed=5, **few(name))
    model = ExplainedOutput(cnn.double().eval())
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = method(model).attribute(images.double(), target=targets, feature_mask=grid[None, None], **few(name))
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=1e-5, atol=1e-7)


def test_kernel_shap_nears_the_shapley_values_of_regions_that_differ_by_image():
    """Image 0 has three regions, image 1 two: of a product of them the values are known."""

    class Product(torch.nn.Module):
        def forward(self, x):
            a, b, c, d = x.flatten(1).T
            return torch.stack([a * b + c * d, a * b * c * d], 1)

    x = torch.tensor([[1.0, 2.0, 3.0, 0.5], [2.0, 1.0, 1.0, 4.0]], dtype=torch.float64).reshape(2, 1, 2, 2)
    mask = torch.tensor([[[0, 1], [2, 2]], [[0, 0], [1, 0]]])
    y = torch.tensor([0, 1])
    # Image 0: {a}, {b}, {c, d}: a b is shared by a and b, c d is the third's. Image 1: a b c d by {a, b, d} and {c}.
    expected = torch.tensor([[[1.0, 1.0], [1.5, 1.5]], [[4.0, 4.0], [4.0, 4.0]]], dtype=torch.float64)
    found = explain("kernel_shap", Product(), x, y, feature_mask=mask, n_samples=4000, output="logit")
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1)
    found = explain("shapley_sampling", Product(), x, y, feature_mask=mask, n_samples=4000, output="logit")
    torch.testing.assert_close(found, expected, rtol=0, atol=0.2)


def test_a_single_feature_has_the_whole_rise(cnn, images, targets):
    mask = torch.zeros(8, 8, dtype=torch.int64)
    for name in ("kernel_shap", "shapley_sampling"):
        maps = explain(name, cnn, images, targets, feature_mask=mask, output="logit", **few(name))
        with torch.no_grad():
            rise = cnn.double().eval()(images.double()) - cnn(torch.zeros(1, 1, 8, 8, dtype=torch.float64))
        torch.testing.assert_close(maps, rise[range(7), targets][:, None, None].expand(-1, 8, 8))


def test_superpixels_follow_the_edges(photos):
    image = torch.zeros(1, 3, 16, 16)
    image[:, 0, :, 5:] = 1
    labels = find_features("slic", image, cell_size=1, n_segments=8).index.reshape(3, 16, 16)
    assert set(labels[0, :, :5].unique().tolist()).isdisjoint(labels[0, :, 5:].unique().tolist())
    assert labels[0].equal(labels[2])


@pytest.mark.parametrize("name", ["shapley_sampling", "kernel_shap", "lime"])
def test_how_many_features_an_image_has_is_nothing_to_the_others(name, rgb_cnn, photos, targets):
    mask = torch.stack([torch.arange(64).reshape(8, 8) // (4 + i % 3) for i in range(7)])
    together = explain(name, rgb_cnn, photos, targets, feature_mask=mask)
    for i in (2, 4):
        alone = explain(name, rgb_cnn, photos[i : i + 1], targets[i : i + 1], feature_mask=mask[i])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("channels", "mask"), [(1, "slic"), (2, "slic"), (3, "slic"), (1, "grid")])
def test_a_volume_of_one_slice_has_the_features_of_that_image(channels, mask):
    images = torch.rand(2, channels, 14, 18, generator=torch.Generator().manual_seed(1))
    flat = find_features(mask, images, cell_size=4, n_segments=12)
    found = find_features(mask, images[:, :, None], cell_size=4, n_segments=12)
    assert found.index.equal(flat.index)
    assert found.shape == (channels, 1, 14, 18)


def test_features_of_volumes_are_cubes_and_supervoxels():
    features = find_features("grid", torch.zeros(2, 1, 3, 4, 5), cell_size=2, n_segments=1)
    assert features.index.reshape(3, 4, 5)[:, :, 0].tolist() == [[0, 0, 3, 3], [0, 0, 3, 3], [6, 6, 9, 9]]
    volume = torch.zeros(1, 1, 8, 8, 8)
    volume[:, :, 3:] = 1
    labels = find_features("slic", volume, cell_size=1, n_segments=8).index.reshape(8, 8, 8)
    assert set(labels[:3].unique().tolist()).isdisjoint(labels[3:].unique().tolist())


def test_a_mask_of_a_volume_has_its_axes():
    images = torch.zeros(2, 1, 3, 4, 5)
    assert find_features(torch.arange(60).reshape(3, 4, 5), images, 1, 1).counts == (60,)
    assert find_features(torch.zeros(2, 3, 4, 5, dtype=torch.int64), images, 1, 1).counts == (1, 1)
    with pytest.raises(ValueError, match=r"expected \[3, 4, 5\], \[2, 3, 4, 5\], \[1, 1, 3, 4, 5\] or"):
        find_features(torch.zeros(4, 5, dtype=torch.int64), images, 1, 1)


def test_cells_at_the_edge_may_be_smaller():
    features = find_features("grid", torch.zeros(2, 1, 5, 7), cell_size=3, n_segments=1)
    assert features.counts == (6,)
    assert features.index.reshape(5, 7)[-1].tolist() == [3, 3, 3, 4, 4, 4, 5]


def test_the_number_of_perturbations_follows_the_features(cnn, images, targets):
    assert build("lime").n_samples is None
    expected = explain(
        "kernel_shap", cnn, images[:2], targets[:2], n_samples=2048 + 2 * 16, feature_mask="grid", cell_size=2
    )
    assert explain("kernel_shap", cnn, images[:2], targets[:2], feature_mask="grid", cell_size=2).equal(expected)
    assert all(features * default_samples(features) <= 2**23 for features in (1, 100, 1024, 4096, 50176, 150528))


def test_by_default_kernel_shap_is_close_to_the_shapley_values(cnn, images, targets, grid):
    coarse = torch.div(grid, 8, rounding_mode="floor") * 2 + grid % 4 // 2

    class Regions(torch.nn.Module):
        """The network as a game of four players, which the oracle enumerates."""

        def forward(self, joined):
            return ExplainedOutput(cnn.double().eval(), "logit")(
                images[:1].double() * joined.flatten(1)[:, coarse][:, None]
            )

    with torch.no_grad():
        values = oracle.shapley_values(Regions(), torch.ones(1, 2, 2, dtype=torch.float64), targets[0])
    found = explain("kernel_shap", cnn, images[:1], targets[:1], feature_mask=coarse, output="logit")
    torch.testing.assert_close(found[0], values.flatten()[coarse], rtol=0, atol=0.05 * values.abs().max().item())
