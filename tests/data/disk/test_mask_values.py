import io

import numpy as np
import pytest
from generators.tumor import write_nifti
from PIL import Image

from xaibench.data.disk.mask_values import mark_values, read_mask_picture
from xaibench.data.exchange.picture_source import PictureSource
from xaibench.data.photographs.image_folder import ImageReader, MaskFiles
from xaibench.data.scans.medical_images import read_medical_mask
from xaibench.data.volume_folder import open_volumes

TRUTH = np.zeros((64, 64), bool)
TRUTH[9:25, 11:27] = True
BYTES = TRUTH.astype(np.uint8)
WHITE = BYTES * np.uint8(255)
ROWS, COLUMNS = np.mgrid[:64, :64]


def decoded(array, kind="PNG", **options):
    stream = io.BytesIO()
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image.save(stream, kind, **options)
    picture = Image.open(stream)
    picture.load()
    return picture


def colored(values):
    return np.repeat(values[..., None], 3, axis=2)


def with_palette(values, palette):
    image = Image.fromarray(values, mode="P")
    image.putpalette(palette)
    return decoded(image)


def with_alpha(color, alpha):
    return np.concatenate([colored(color), alpha[..., None]], axis=2)


def noise_of_236_to_255():
    return np.where(TRUTH, np.random.default_rng(0).integers(236, 256, TRUTH.shape), 0).astype(np.uint8)


def with_ignored_border():
    values = BYTES.copy()
    values[8:26, 10:28][~TRUTH[8:26, 10:28]] = 255
    return values


def resized(size, method=Image.BILINEAR):
    return np.asarray(Image.fromarray(WHITE).resize((size, size), method).resize((64, 64), Image.BICUBIC))


def disjoint_labels(count, step=1):
    values = np.zeros((64, 64), np.uint8)
    for number in range(count):
        row, column = 8 * (number // 8), 8 * (number % 8)
        values[row + 1 : row + 7, column + 1 : column + 7] = step * (number * 5 % count + 1)
    return values


EXACT = {
    "0 and 1": lambda: decoded(BYTES),
    "0 and 255": lambda: decoded(WHITE),
    "0 and 236 to 255": lambda: decoded(noise_of_236_to_255()),
    "palette of labels": lambda: with_palette(BYTES, [0, 0, 0, 128, 0, 0] + [9] * 762),
    "palette of colors": lambda: with_palette(1 - BYTES, [200, 0, 0, 0, 0, 0]),
    "16 bits": lambda: decoded(BYTES.astype(np.uint16)),
    "1 bit": lambda: decoded(TRUTH),
    "color of a class": lambda: decoded(colored(BYTES) * np.array([0, 0, 64], np.uint8)),
    "two colors": lambda: decoded(colored(np.where(COLUMNS < 20, 40, 200).astype(np.uint8) * BYTES)),
    "white, transparent elsewhere": lambda: decoded(with_alpha(np.full_like(WHITE, 255), WHITE)),
    "lossless WebP": lambda: decoded(colored(WHITE), "WEBP", lossless=True),
    "GIF": lambda: decoded(WHITE, "GIF"),
}
CUT = {
    "JPEG": lambda: decoded(WHITE, "JPEG", quality=75),
    "gray JPEG": lambda: decoded(BYTES * np.uint8(100), "JPEG", quality=75),
    "JPEG saved again as PNG": lambda: decoded(decoded(WHITE, "JPEG", quality=90)),
    "JPEG of low quality saved again": lambda: decoded(decoded(WHITE, "JPEG", quality=20)),
    "JPEG saved again in color": lambda: decoded(decoded(colored(WHITE), "JPEG", quality=75)),
    "lossy WebP": lambda: decoded(colored(WHITE), "WEBP", quality=75),
    "lossy WebP of low quality": lambda: decoded(colored(WHITE), "WEBP", quality=20),
    "JPEG in TIFF": lambda: decoded(colored(WHITE), "TIFF", compression="jpeg"),
}


def intersection_over_union(marked, truth):
    return (marked & truth).sum() / (marked | truth).sum()


@pytest.mark.parametrize("name", EXACT)
def test_files_without_loss_are_exact(name, caplog):
    assert np.array_equal(read_mask_picture(EXACT[name](), name, name), TRUTH)
    assert caplog.text == ""


@pytest.mark.parametrize("name", CUT)
def test_lossy_files_are_cut_at_half_and_logged_once(name, caplog):
    for _ in range(2):
        assert np.array_equal(read_mask_picture(CUT[name](), f"{name}.x", f"cut {name}"), TRUTH)
    assert caplog.text.count(f"{name}.x") == 1


@pytest.mark.parametrize("size", [32, 27, 16])
@pytest.mark.parametrize("method", [Image.BILINEAR, Image.LANCZOS])
def test_soft_edges_are_cut_at_half(size, method, caplog):
    marked = read_mask_picture(decoded(resized(size, method)), "soft.png", f"soft {size} {method}")
    assert intersection_over_union(marked, TRUTH) > 0.84
    assert (resized(size, method) > 0).sum() > 1.2 * marked.sum()
    assert "soft.png" in caplog.text


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("width", [5, 20])
def test_a_heat_map_is_cut_at_half(dtype, width, caplog):
    heat = np.exp(-((ROWS - 30) ** 2 + (COLUMNS - 30) ** 2) / (2 * width**2))
    scale = 1 if dtype == np.float32 else np.iinfo(dtype).max
    values = (heat * scale).astype(dtype)
    marked = mark_values(values, "heat.tif", f"heat {dtype} {width}")
    assert np.array_equal(marked, values >= values.max() / 2)
    assert "heat.tif" in caplog.text


@pytest.mark.parametrize(("count", "step"), [(2, 1), (3, 60), (5, 50), (15, 1), (40, 1), (60, 4)])
def test_labels_are_exact(count, step, caplog):
    values = disjoint_labels(count, step)
    assert np.array_equal(mark_values(values, "labels.png", "labels"), values > 0)
    assert caplog.text == ""


def test_thin_labels_of_a_few_classes_are_exact():
    values = np.where(ROWS == COLUMNS, 1, 0) + np.where((ROWS == 5) | (ROWS == 40), 9, 0) + 4 * TRUTH
    assert np.array_equal(mark_values(values.astype(np.uint8), "thin.png", "thin"), values > 0)


@pytest.mark.parametrize("label", [1, 20])
def test_255_next_to_labels_is_ignored_and_logged_once(label, caplog):
    values = with_ignored_border()
    values[values == 1] = label
    for _ in range(2):
        assert np.array_equal(mark_values(values, "voc.png", f"voc {label}"), TRUTH)
    assert caplog.text.count("voc.png") == 1


def test_255_next_to_gray_is_important():
    values = np.where(COLUMNS < 20, 128, 255).astype(np.uint8) * BYTES
    assert np.array_equal(mark_values(values, "gray.png", "gray"), TRUTH)


def test_an_empty_mask_of_a_file_that_is_not_uniform_is_logged(caplog):
    black = decoded(with_alpha(np.zeros_like(WHITE), WHITE))
    assert not read_mask_picture(black, "black.png", "transparent").any()
    assert "black.png" in caplog.text
    caplog.clear()
    for array in (np.zeros_like(WHITE), with_alpha(np.zeros_like(WHITE), np.full_like(WHITE, 255))):
        assert not read_mask_picture(decoded(array), "zero.png", "zero").any()
    assert not read_mask_picture(decoded(np.zeros_like(WHITE), "JPEG"), "zero.jpg", "zero").any()
    assert caplog.text == ""


def test_volumes_are_cut_as_a_whole(caplog):
    """The first slice only has soft edges."""
    volume = np.stack([resized(16) // 5, resized(16), resized(16)])
    marked = mark_values(volume, "volume.nii", "volumes")
    assert not marked[0].any()
    assert np.array_equal(marked[1], volume[1] >= volume.max() / 2)
    assert "volume.nii" in caplog.text


SOFT = resized(16)


def of_a_folder(folder):
    (folder / "mask").mkdir()
    Image.fromarray(SOFT).save(folder / "mask" / "a.png")
    Image.fromarray(SOFT).save(folder / "a.png")
    return MaskFiles(folder / "mask", ImageReader()).read(0, folder / "a.png")


def of_a_table(folder):
    stream = io.BytesIO()
    Image.fromarray(SOFT).save(stream, "PNG")
    row = {"image": None, "mask": stream.getvalue()}
    options = {"image": "image", "mask": "mask", "has_mask": np.ones(1, bool)}
    return PictureSource(str(folder), lambda number: row, np.zeros(1, np.int64), ("a",), **options).mask(0)


def of_a_slice(folder):
    paths = [write_nifti(folder / f"{name}.nii", SOFT[None]) for name in ("image", "mask")]
    return read_medical_mask(paths[1], 0, paths[0])


def of_a_volume(folder):
    for kind in ("image", "mask"):
        (folder / kind).mkdir()
        np.save(folder / kind / "a.npy", SOFT[None])
    return open_volumes(folder).mask(0)[0]


@pytest.mark.parametrize("read", [of_a_folder, of_a_table, of_a_slice, of_a_volume])
def test_all_readers_cut_soft_masks(read, tmp_path, caplog):
    assert np.array_equal(read(tmp_path), SOFT.max() / 2 <= SOFT)
    assert str(tmp_path) in caplog.text
