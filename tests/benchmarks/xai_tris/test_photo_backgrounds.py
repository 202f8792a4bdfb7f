import logging

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused

import xaibench.benchmarks.xai_tris.photo_backgrounds as module
from xaibench.benchmarks.xai_tris.photo_backgrounds import assign_backgrounds, image_backgrounds, prepare_image
from xaibench.data import load
from xaibench.data.annotated import DataFileError


@pytest.fixture
def folder(tmp_path):
    """Thirty usable images in two folders, two too small, and files that are no images."""
    root = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for i in range(30):
        place = root / ("cats/tabby" if i % 2 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(64, 120, size=2)
        pixels = rng.integers(0, 256, size=(height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{i:02}.{('png', 'JPEG', 'bmp')[i % 3]}")
    for i in range(2):
        Image.new("RGB", (63, 200), (i, 0, 0)).save(root / f"small{i}.png")
    (root / "readme.txt").write_text("no image")
    (root / "._junk.jpg").write_bytes(b"no image either")
    return root


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def backgrounds(folder, cache, n=30, seed=0, **how):
    return image_backgrounds(folder, n, 64, seed=seed, cache_dir=cache, **how)[0]


def test_an_image_is_scaled_cropped_and_grayed():
    pixels = np.zeros((80, 240, 3), dtype=np.uint8)
    pixels[:, :80] = (10, 0, 0)  # left third, cropped away
    pixels[:, 80:120] = (0, 100, 100)
    pixels[:, 120:160] = (200, 0, 50)
    gray = prepare_image(Image.fromarray(pixels), 64)
    assert (gray.shape, gray.dtype) == ((64, 64), np.float32)
    left, right = 0.587 * 100 + 0.114 * 100, 0.299 * 200 + 0.114 * 50
    np.testing.assert_allclose(gray[:, 4:28] - gray[:, 36:60], left - right, atol=1e-4)
    assert abs(gray.mean()) < 1e-5


def test_an_image_is_scaled_as_pillow_does_by_default():
    pixels = np.random.default_rng(0).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    resized = np.asarray(Image.fromarray(pixels).resize((96, 64)), dtype=np.float64)[:, 16:80]
    expected = resized @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(prepare_image(Image.fromarray(pixels), 64), expected - expected.mean(), atol=1e-4)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_images_of_any_mode(mode):
    assert prepare_image(Image.new(mode, (70, 64)), 64).shape == (64, 64)


def test_the_seed_chooses_and_orders(folder, cache):
    all_of_them = backgrounds(folder, cache)
    assert len({image.tobytes() for image in all_of_them}) == 30
    np.testing.assert_array_equal(backgrounds(folder, cache, n=12), all_of_them[:12])
    other = backgrounds(folder, cache, seed=1)
    assert not np.array_equal(other, all_of_them)
    assert {image.tobytes() for image in other} == {image.tobytes() for image in all_of_them}
    np.testing.assert_array_equal(backgrounds(folder, cache / "else", workers=3), all_of_them)


def test_the_cache_spares_the_reading_until_the_folder_changes(folder, cache, monkeypatch):
    first = backgrounds(folder, cache)
    monkeypatch.setattr(module, "_read_image", lambda file, size: pytest.fail("the cache was not used"))
    np.testing.assert_array_equal(backgrounds(folder, cache), first)
    monkeypatch.undo()
    Image.new("RGB", (64, 64), "red").save(folder / "zz.png")
    assert not np.array_equal(backgrounds(folder, cache, n=31)[:30], first)
    assert len(list(cache.iterdir())) == 2


def test_of_too_few_images_all_are_taken(folder, cache):
    whole = backgrounds(folder, cache)
    for _ in range(2):  # from the folder, and from the cache
        np.testing.assert_array_equal(backgrounds(folder, cache, n=50), whole)


def test_no_usable_image(tmp_path, cache):
    Image.new("RGB", (63, 200)).save(tmp_path / "small.png")
    refused(ValueError, "smaller than 64 px", lambda: backgrounds(tmp_path, cache, n=31))
    assert not cache.exists()


@pytest.mark.parametrize(("images", "sizes"), [(30, (90, 5, 5)), (3, (90, 5, 5)), (8, (10, 0, 3)), (99, (50, 25, 25))])
def test_repeated_images_stay_in_their_split_and_take_turns(images, sizes):
    under = assign_backgrounds(images, sizes)
    assert sorted(set(under)) == list(range(images))
    parts = np.split(under, np.cumsum(sizes)[:-1])
    assert sum(len(set(part)) for part in parts) == images, "no image in two splits"
    for part in parts:
        often = np.unique(part, return_counts=True)[1]
        assert len(often) == 0 or often.max() - often.min() <= 1
        assert sorted(set(part[: len(often)])) == sorted(set(part)), "all of them before the first again"


def test_one_image_a_split_is_needed():
    refused(ValueError, "2 usable images", lambda: assign_backgrounds(2, (3, 2, 1)))


def test_a_set_on_few_images_says_how_often_each_is_repeated(folder, cache, caplog):
    with caplog.at_level(logging.WARNING, logger="xaibench"):
        data = load("xai-tris/xor-imagenet-64x64", images_dir=folder, cache_dir=cache, n_samples=120, alpha=0.0)
    said = "30 photographs are the backgrounds of 120 samples: each is used 4 times on average, always within one split"
    assert said in data.note
    assert "The paper had 50,000 photographs and repeated none." in data.note
    assert data.note in caplog.text
    assert data.note in data._repr_html_()
    groups = [split.groups.tolist() for split in (data.train, data.val, data.test)]
    assert len(set(groups[0]) | set(groups[1]) | set(groups[2])) == sum(len(set(one)) for one in groups) == 30
    one = [number for number, group in enumerate(groups[0]) if group == groups[0][0]]
    assert len(one) == 5  # 104 to 108 samples on 26 photographs
    assert torch.equal(data.train.images[one], data.train.images[one[0]].expand(5, 1, 64, 64))
    enough = load("xai-tris/xor-imagenet-64x64", images_dir=folder, cache_dir=cache, n_samples=28, alpha=0.0)
    assert (enough.note, enough.train.groups) == ("", None)


def test_a_few_unreadable_images_are_left_out_by_name_and_many_are_an_error(folder, cache, caplog):
    victim = folder / "dogs" / "00.png"
    victim.write_bytes(victim.read_bytes()[:200])
    for _ in range(2):  # from the folder, and from the cache
        pixels, left_out = image_backgrounds(folder, 30, 64, seed=0, cache_dir=cache)
        assert len(pixels) == 29
        assert left_out == "1 of 32 images cannot be read and are left out."
    assert str(victim) in caplog.text
    (folder / "text.jpg").write_text("no image")
    for name in ("dogs/00.png", "text.jpg"):
        refused(DataFileError, name, backgrounds, folder, cache)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_set_on_images(folder, cache, workers):
    dataset = load("xai-tris/lin-imagenet-64x64", images_dir=folder, cache_dir=cache, n_samples=30, alpha=0.0,
                   split=(0.6, 0.2, 0.2), workers=workers)  # fmt: skip
    images = torch.cat([dataset.train.images, dataset.val.images, dataset.test.images])[:, 0].numpy()
    pixels = backgrounds(folder, cache)
    np.testing.assert_allclose(images, pixels / np.abs(pixels).max(), atol=1e-6)
    assert dataset.train.masks.sum(dim=(1, 2)).unique().tolist() == [862]


def test_images_of_one_gray_are_no_background(tmp_path, cache):
    for i in range(20):
        Image.new("RGB", (64, 64), (i, i, i)).save(tmp_path / f"{i}.png")
    settings = {"images_dir": tmp_path, "cache_dir": cache, "n_samples": 20}
    refused(ValueError, "constant", lambda: load("xai-tris/lin-imagenet-64x64", **settings))
