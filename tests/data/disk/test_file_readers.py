import numpy as np
import pytest
from PIL import Image

from xaibench.data.disk.file_readers import (
    DataFileError,
    MissingDataError,
    image_size,
    open_image,
    read_indices,
    read_lines,
    read_xml,
)


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


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16)).save(tmp_path / "a.png")
    assert np.asarray(open_image(tmp_path / "a.png", 1, mode="L")).tolist() == [[0, 128, 255]]


def test_a_truncated_jpeg_is_named(photo):
    path = photo("cut.jpg")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataFileError, match=r"cut\.jpg cannot be read \(.*truncated"):
        open_image(path, 300)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04\x95"], ids=["empty", "text", "pickle"])
def test_what_is_no_image_is_named(tmp_path, content):
    (tmp_path / "no.jpg").write_bytes(content)
    for read in (lambda path: open_image(path, 8), image_size, read_indices):
        with pytest.raises(DataFileError, match=r"no\.jpg is no image"):
            read(tmp_path / "no.jpg")


def test_an_image_too_large_to_be_safe_is_named(photo, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(DataFileError, match=r"big\.png is larger than is safe to decode \(.*Scale it down\."):
        open_image(photo("big.png"), 8)


def test_a_missing_file_is_named(tmp_path):
    for read in (lambda path: open_image(path, 8), image_size, read_indices, read_lines, read_xml):
        with pytest.raises(MissingDataError, match=r"gone\.x is missing"):
            read(tmp_path / "gone.x")


def test_labels_are_the_palettes_indices_not_its_colours(tmp_path):
    labels = np.array([[0, 5, 255], [20, 0, 1]], dtype=np.uint8)
    mask = Image.fromarray(labels, mode="P")
    mask.putpalette(np.random.default_rng(0).integers(0, 256, 768, dtype=np.uint8).tobytes())
    mask.save(tmp_path / "m.png")
    assert np.array_equal(read_indices(tmp_path / "m.png"), labels)


def test_a_mask_of_one_bit_is_0_or_255(tmp_path):
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "m.png")
    assert read_indices(tmp_path / "m.png").tolist() == [[255, 0]]


def test_a_mask_with_colours_is_refused(photo):
    with pytest.raises(DataFileError, match=r"m\.png is a mask with mode 'RGB'; expected labels"):
        read_indices(photo("m.png"))


def test_a_mask_of_another_size_is_refused_with_both_names(photo):
    mask = photo("m.png", (40, 30), "L")
    assert read_indices(mask, like=photo("a.jpg", (40, 30))).shape == (30, 40)
    with pytest.raises(DataFileError, match=r"m\.png is 30×40, but its image b\.jpg is 31×40"):
        read_indices(mask, like=photo("b.jpg", (40, 31)))


def test_size_is_height_and_width(photo):
    assert image_size(photo("a.jpg")) == (300, 400)


def test_lines_are_stripped_and_blank_ones_left_out(tmp_path):
    (tmp_path / "l.txt").write_bytes(b"\xef\xbb\xbfone \r\n\r\n  two\n")
    assert read_lines(tmp_path / "l.txt") == ["one", "two"]
    (tmp_path / "l.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataFileError, match=r"l\.txt cannot be read"):
        read_lines(tmp_path / "l.txt")


ENTITIES = '<!DOCTYPE a [<!ENTITY x "lol"><!ENTITY y "&x;&x;">]><a>&y;</a>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'


@pytest.mark.parametrize("text", [ENTITIES, OUTSIDE], ids=["bomb", "file"])
def test_xml_with_entities_is_refused(tmp_path, text):
    (tmp_path / "e.xml").write_text(text)
    with pytest.raises(DataFileError, match=r"e\.xml declares a document type or entities, refused as unsafe"):
        read_xml(tmp_path / "e.xml")


def test_half_an_xml_file_is_named(tmp_path):
    (tmp_path / "h.xml").write_text("<a><b>")
    with pytest.raises(DataFileError, match=r"h\.xml cannot be read"):
        read_xml(tmp_path / "h.xml")
    (tmp_path / "h.xml").write_text("<a><b>1</b></a>")
    assert read_xml(tmp_path / "h.xml").findtext("b") == "1"
