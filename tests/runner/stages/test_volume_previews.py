"""Pictures of volumes: where they are cut, their aspect ratio and their bounded size."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from report.conftest import FEW_CELLS, make_scores
from report.pictures import make_samples, make_volumes

from xaibench.data import Split
from xaibench.runfolder.sample_file import MOST_VOXELS, SIDE
from xaibench.runner.stages import preview_samples
from xaibench.runner.stages.preview_samples import SampleView, mean_share, pixel_sizes, without_images


class Scans(Split):
    def metric_inputs(self, index):
        return {"spacing": np.array([[2.0, 1.0, 1.0], [3.0, 1.0, 1.0], [9.0, 1.0, 1.0]])[index]}


def block(shape, *corner):
    mask = np.zeros(shape, bool)
    mask[tuple(slice(start, start + 2) for start in corner)] = True
    return mask


def test_a_volume_is_cut_through_its_mask_or_in_the_middle():
    assert SampleView(block((5, 6, 7), 3, 1, 4), np.ones(3)).slices == (3, 1, 4)
    wide = np.zeros((5, 6, 7), bool)
    wide[:, 1:4, 2] = True  # of equal slices, the middle one
    assert SampleView(wide, np.ones(3)).slices == (2, 2, 2)
    assert SampleView(np.zeros((5, 6, 7), bool), np.ones(3)).slices == (2, 3, 3)
    assert SampleView(np.zeros((6, 7), bool), np.ones(2)).slices == ()


def test_a_small_volume_is_kept_as_it_is():
    volume = np.random.default_rng(0).normal(size=(2, 5, 6, 7)).astype(np.float32)
    view = SampleView(block((5, 6, 7), 3, 1, 4), np.ones(3))
    flat = view.flat(volume)
    assert flat.shape == (2, 6 + 5, 7 + 5)
    assert np.array_equal(flat[:, :6, :7], volume[:, 3])
    assert np.array_equal(flat[:, :6, 7:], volume[..., 4].swapaxes(1, 2))
    assert np.array_equal(flat[:, 6:, :7], volume[:, :, 1])
    assert np.array_equal(view.reduced(volume), volume)


@pytest.mark.parametrize("shape", [(96, 96, 96), (32, 64, 64), (300, 2, 2)])
def test_the_pictures_of_a_large_volume_are_bounded(shape):
    view = SampleView(np.zeros(shape, bool), np.ones(3))
    assert max(view.flat(np.ones((1, *shape))).shape) <= SIDE
    assert view.reduced(np.ones((1, *shape))).size <= MOST_VOXELS
    assert view.reduced(np.ones((1, *shape))).size > MOST_VOXELS / 2 or min(shape) == 2
    assert view.reduced(np.ones((1, *shape))).max() == 1


def test_pictures_have_the_aspect_ratio_of_the_voxels():
    images, masks = torch.rand(3, 1, 4, 6, 8), torch.zeros(3, 4, 6, 8, dtype=torch.bool)
    sizes = pixel_sizes(Scans(images, masks, torch.zeros(3, dtype=torch.int64)), [0, 1, 2])
    assert sizes.tolist() == [3.0, 1.0, 1.0]  # the median, so that all pictures of a cell have the same size
    view = SampleView(masks[0].numpy(), sizes)
    assert view.lengths == (12, 6, 8)
    flat = view.flat(images[0].numpy())
    assert np.allclose(flat[0, 6::3, :8], images[0, 0, :, 3])
    assert pixel_sizes(Split(images, masks, torch.zeros(3, dtype=torch.int64)), [0]).tolist() == [1, 1, 1]


def test_the_samples_of_a_cell_are_cut_alike_in_images_masks_and_maps(monkeypatch):
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.normal(size=(3, 1, 4, 5, 6))).float()
    masks = torch.from_numpy(
        np.stack([block((4, 5, 6), 1, 2, 3), block((4, 5, 6), 0, 0, 0), np.zeros((4, 5, 6), bool)])
    )
    maps = torch.from_numpy(rng.normal(size=(3, 4, 5, 6))).float()
    monkeypatch.setattr(preview_samples, "read_maps", lambda store, job: maps)
    split = Split(images, masks, torch.zeros(3, dtype=torch.int64))
    views, pictures, shown_masks, volumes = preview_samples._read_samples(split, [2, 0], False)
    assert [view.slices for view in views] == [(2, 2, 3), (1, 2, 3)]
    assert pictures.shape == (2, 9, 10, 3)
    gray = images[0, 0, 1].numpy()
    cut = np.concatenate([gray.ravel(), images[0, 0, :, :, 3].numpy().ravel(), images[0, 0, :, 2].numpy().ravel()])
    assert np.abs(pictures[1, :5, :6, 0] - 255 * (0.5 + 0.5 * gray / np.abs(cut).max())).max() <= 0.51
    assert np.array_equal(shown_masks[1, :5, :6], masks[0, 1].numpy())
    kept, means, reduced = preview_samples._read_maps([None], None, [2, 0], [0, 1, 2], views, 1)
    magnitude = maps.abs().numpy()
    assert kept.shape == (2, 1, 9, 10)
    own = kept[1, 0, :5, :6].astype(float)
    assert np.allclose(own / own.max(), magnitude[0, 1] / magnitude[0, 1].max(), atol=2e-3)
    assert np.allclose(means[0, :5, :6], mean_share(magnitude)[1])
    assert np.allclose(reduced[:, 0], magnitude[[2, 0]] / magnitude[[2, 0]].max((1, 2, 3), keepdims=True))
    voxels = preview_samples._describe_volumes(views, volumes, reduced)
    assert (voxels.shape, voxels.slices, voxels.sides) == ((4, 5, 6), ((2, 2, 3), (1, 2, 3)), (4, 5, 6))
    assert np.array_equal(voxels.masks[1], masks[0].numpy())
    whole = images[0, 0].numpy()
    assert np.abs(voxels.images[1] - 255 * (0.5 + 0.5 * whole / np.abs(whole).max())).max() <= 0.51


def test_volumes_that_may_not_be_passed_on_are_blank():
    cell = make_samples(make_scores(samples=4, cells=FEW_CELLS[:1]))[0]
    volumes = replace(cell, **make_volumes(cell))
    blank = without_images(volumes, [cell.explainers[1]]).voxels
    assert (blank.images == 255).all()
    assert not blank.maps[:, 1].any()
    assert np.array_equal(blank.maps[:, 0], volumes.voxels.maps[:, 0])
