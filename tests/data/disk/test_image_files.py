"""Images of every depth, transparency and orientation, and masks of labels."""

import tracemalloc

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.image_files import check_same_size, image_size, open_image, read_indices


@pytest.fixture
def photo(tmp_path):
    """``photo(name, (width, height))``: a smooth image file."""
    coarse = np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8)

    def save(name, size=(400, 300), mode="RGB"):
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode).save(tmp_path / name)
        return tmp_path / name

    return save


@pytest.mark.parametrize(
    ("size", "decoded"), [(300, (400, 300)), (151, (400, 300)), (150, (200, 150)), (40, (100, 75))]
)
def test_a_jpeg_is_decoded_at_a_fraction_never_below_the_size(photo, size, decoded):
    assert open_image(photo("a.jpg"), size).size == decoded


def test_a_jpeg_at_a_fraction_looks_the_same(photo):
    path = photo("a.jpg")
    whole = Image.open(path).resize((64, 64), Image.Resampling.BILINEAR)
    fast = open_image(path, 64).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(whole, int) - np.asarray(fast, int)).max() <= 4


@pytest.mark.parametrize(
    ("name", "mode"), [("a.png", "P"), ("a.png", "RGBA"), ("a.png", "L"), ("a.gif", "P"), ("a.bmp", "RGB")]
)
def test_every_mode_becomes_rgb(photo, name, mode):
    image = open_image(photo(name, mode=mode), 64)
    assert (image.mode, image.size) == ("RGB", (400, 300))


def test_a_suffix_that_lies_is_no_matter(photo):
    assert open_image(photo("a.png").rename(photo("a.png").with_name("b.jpg")), 64).mode == "RGB"


def save(path, values, **keywords):
    Image.fromarray(np.asarray(values)).save(path, **keywords)
    return path


def pixels(*arguments, **keywords):
    return np.asarray(open_image(*arguments, **keywords))


def test_sixteen_bits_keep_their_depth(tmp_path):
    found = open_image(save(tmp_path / "a.png", np.array([[0, 32768, 65535]], dtype=np.uint16)), 1)
    assert found.mode == "F"
    assert np.asarray(found).tolist() == [[0, np.float32(32768 / 65535), 1]]


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_the_scale_of_sixteen_bits_does_not_depend_on_the_image(tmp_path, suffix):
    dark = pixels(save(tmp_path / f"dark.{suffix}", np.array([[0, 255]], dtype=np.uint16)), 1)
    less = pixels(save(tmp_path / f"less.{suffix}", np.array([[0, 256]], dtype=np.uint16)), 1)
    assert dark[0, 1] == np.float32(255 / 65535)
    assert less[0, 1] == np.float32(256 / 65535)
    twelve = pixels(save(tmp_path / f"twelve.{suffix}", np.array([[0, 4095]], dtype=np.uint16)), 1, scale=4095)
    assert twelve.tolist() == [[0, 1]]


def test_floating_point_numbers_are_gray_from_0_to_1(tmp_path):
    values = np.array([[0, 0.25, 1]], dtype=np.float32)
    assert pixels(save(tmp_path / "a.tif", values), 1).tolist() == values.tolist()
    assert pixels(save(tmp_path / "b.tif", values * 200), 1, scale=200).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("values", "said"),
    [([0, np.nan], "NaN"), ([0, np.inf], "infinite"), ([0, 200], "0 to 200"), ([-0.5, 1], "-0.5 to 1")],
)
def test_values_that_are_no_gray_are_named(tmp_path, values, said):
    path = save(tmp_path / "a.tif", np.array([values], np.float32))
    refused(DataFileError, "a.tif", open_image, path, 1)
    refused(DataFileError, said, open_image, path, 1)
    refused(DataFileError, "0 to 70000", open_image, save(tmp_path / "b.tif", np.array([[0, 70000]], np.int32)), 1)


def test_through_transparent_pixels_the_ground_is_seen(tmp_path):
    rgba = np.array([[[200, 0, 0, 255], [200, 0, 0, 0], [200, 0, 0, 51]]], dtype=np.uint8)
    path = save(tmp_path / "a.png", rgba)
    assert pixels(path, 1).tolist() == [[[200, 0, 0], [255, 255, 255], [244, 204, 204]]]
    assert pixels(path, 1, ground=0.0).tolist() == [[[200, 0, 0], [0, 0, 0], [40, 0, 0]]]
    palette = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), mode="P")
    palette.putpalette([9, 9, 9, 200, 0, 0])
    palette.save(tmp_path / "p.png", transparency=1)
    assert pixels(tmp_path / "p.png", 1).tolist() == [[[9, 9, 9], [255, 255, 255]]]
    Image.fromarray(rgba[..., :3]).save(tmp_path / "key.png", transparency=(200, 0, 0))
    assert (pixels(tmp_path / "key.png", 1) == 255).all()


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_an_image_is_turned_as_its_orientation_says(tmp_path, suffix, orientation):
    stored = np.zeros((64, 96, 3), dtype=np.uint8)
    stored[:32, :32] = 255
    # What EXIF says of each: where the stored first row and first column are seen.
    seen = {
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.transpose(1, 0, 2),
        6: stored[::-1].transpose(1, 0, 2),
        7: stored[::-1, ::-1].transpose(1, 0, 2),
        8: stored[:, ::-1].transpose(1, 0, 2),
    }.get(orientation, stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / f"a.{suffix}", stored, exif=exif)
    assert image_size(path, upright=True) == seen.shape[:2]
    assert np.abs(pixels(path, 96, upright=True).astype(int) - seen).mean() < 3
    if suffix != "tif":  # which Pillow turns by itself
        assert image_size(path) == stored.shape[:2]
        assert np.abs(pixels(path, 96).astype(int) - stored).mean() < 3


def test_a_mask_that_lies_as_its_image_is_stored_is_named(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = save(tmp_path / "a.jpg", np.zeros((64, 96, 3), np.uint8), exif=exif)
    check_same_size(np.zeros((96, 64)), "m.png", image, upright=True)
    check_same_size(np.zeros((64, 96)), "m.png", image)
    refused(DataFileError, "m.png", lambda: check_same_size(np.zeros((64, 96)), "m.png", image, upright=True))


def test_a_truncated_jpeg_is_named(photo):
    path = photo("cut.jpg")
    path.write_bytes(path.read_bytes()[:-2000])
    refused(DataFileError, "cut.jpg", lambda: open_image(path, 300))


def test_what_is_no_image_or_missing_is_named(tmp_path):
    for read in (lambda path: open_image(path, 8), image_size, read_indices):
        refused(MissingDataError, "gone.x", read, tmp_path / "gone.x")
        for content in (b"", b"hello", b"\x80\x04\x95"):
            (tmp_path / "no.jpg").write_bytes(content)
            refused(DataFileError, "no.jpg", read, tmp_path / "no.jpg")


def test_an_image_too_large_to_be_safe_is_named(photo, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    refused(DataFileError, "big.png", lambda: open_image(photo("big.png"), 8))


def test_labels_are_the_palettes_indices_not_its_colors(tmp_path):
    labels = np.array([[0, 5, 255], [20, 0, 1]], dtype=np.uint8)
    mask = Image.fromarray(labels, mode="P")
    mask.putpalette(np.random.default_rng(0).integers(0, 256, 768, dtype=np.uint8).tobytes())
    mask.save(tmp_path / "m.png")
    assert np.array_equal(read_indices(tmp_path / "m.png"), labels)


def test_a_mask_of_one_bit_is_0_or_255(tmp_path):
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "m.png")
    assert read_indices(tmp_path / "m.png").tolist() == [[255, 0]]


def test_a_mask_with_colors_or_of_another_size_is_refused(photo):
    refused(DataFileError, "m.png", read_indices, photo("m.png"))
    mask = photo("m.png", (40, 30), "L")
    assert read_indices(mask, like=photo("a.jpg", (40, 30))).shape == (30, 40)
    refused(DataFileError, "m.png", lambda: read_indices(mask, like=photo("b.jpg", (40, 31))))


def test_size_is_height_and_width(photo):
    assert image_size(photo("a.jpg")) == (300, 400)


@pytest.mark.parametrize("read", [lambda path: open_image(path, 8), read_indices])
def test_a_length_that_is_made_up_asks_for_no_memory(tmp_path, read):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((300, 300), dtype=np.uint8)).save(path, compress_level=0)
    # The first block of pixels claims to be 4 GB.
    before, found, after = path.read_bytes().partition(b"IDAT")
    path.write_bytes(before[:-4] + b"\xf0\xff\xff\xff" + found + after[:2000])
    tracemalloc.start()
    refused(DataFileError, "a.png", lambda: read(path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5e6
