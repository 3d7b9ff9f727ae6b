"""One picture, in every way a file can store it."""

import numpy as np
import pytest
from PIL import Image
from written import put, random_bytes

from tickgp.data.pictures import picture_size, read_picture

GREY, COLOUR = random_bytes(6, 9), random_bytes(6, 9, 3)
LEVELS = np.arange(54, dtype=np.uint8).reshape(6, 9)


def saved(tmp_path, image, name="picture.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp", "ppm", "gif"])
def test_grey(tmp_path, suffix):
    path = saved(tmp_path, Image.fromarray(GREY), f"picture.{suffix}", lossless=True)
    np.testing.assert_array_equal(read_picture(path), GREY[..., None])


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp", "ppm"])
def test_colour(tmp_path, suffix):
    path = saved(tmp_path, Image.fromarray(COLOUR), f"picture.{suffix}", lossless=True)
    np.testing.assert_array_equal(read_picture(path), COLOUR)


def test_grey_pixels_in_a_colour_file_are_grey(tmp_path):
    path = saved(tmp_path, Image.fromarray(GREY).convert("RGB"))
    np.testing.assert_array_equal(read_picture(path), GREY[..., None])


TURNS = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", TURNS)
def test_exif_turns_the_picture(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(COLOUR), exif=exif)
    expected = TURNS[orientation](COLOUR)
    np.testing.assert_array_equal(read_picture(path), expected)
    assert picture_size(path) == expected.shape[:2]


def test_transparent_parts_lie_on_white(tmp_path):
    alpha = np.full((6, 9), 255, np.uint8)
    alpha[0], alpha[1] = 0, 128
    pixels = read_picture(saved(tmp_path, Image.fromarray(np.dstack([COLOUR, alpha]))))
    assert (pixels[0] == 255).all()
    np.testing.assert_allclose(pixels[1], COLOUR[1] * (128 / 255) + 127, atol=1)
    np.testing.assert_array_equal(pixels[2:], COLOUR[2:])


def test_transparent_grey_stays_grey(tmp_path):
    alpha = Image.fromarray(np.where(LEVELS < 9, 0, 255).astype(np.uint8))
    pixels = read_picture(saved(tmp_path, Image.merge("LA", [Image.fromarray(LEVELS), alpha])))
    np.testing.assert_array_equal(pixels[..., 0], np.where(LEVELS < 9, 255, LEVELS))


def paletted():
    image = Image.fromarray(LEVELS).convert("P")
    image.putpalette([value for level in range(256) for value in (level, 255 - level, 7)])
    return image


def test_palette(tmp_path):
    expected = np.dstack([LEVELS, 255 - LEVELS, np.full_like(LEVELS, 7)])
    np.testing.assert_array_equal(read_picture(saved(tmp_path, paletted())), expected)


def test_palette_with_a_transparent_colour(tmp_path):
    pixels = read_picture(saved(tmp_path, paletted(), transparency=0))
    assert (pixels[0, 0] == 255).all()
    assert tuple(pixels[0, 1]) == (1, 254, 7)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits(tmp_path, suffix):
    deep = Image.fromarray(LEVELS.astype(np.uint16) * 257 + 100)
    np.testing.assert_array_equal(read_picture(saved(tmp_path, deep, f"a.{suffix}"))[..., 0], LEVELS)
    white = Image.fromarray(np.full((2, 2), 65535, np.uint16))
    assert (read_picture(saved(tmp_path, white, f"b.{suffix}")) == 255).all()


def test_one_bit(tmp_path):
    pixels = read_picture(saved(tmp_path, Image.fromarray(GREY > 100)))
    np.testing.assert_array_equal(pixels[..., 0], np.where(GREY > 100, 255, 0))


def test_cmyk(tmp_path):
    ink = np.zeros((4, 4, 4), np.uint8)
    ink[:2, :, 0], ink[2:, :, 3] = 255, 255  # cyan above, black below
    pixels = read_picture(saved(tmp_path, Image.frombytes("CMYK", (4, 4), ink.tobytes()), "a.tif"))
    assert tuple(pixels[0, 0]) == (0, 255, 255)
    assert tuple(pixels[3, 3]) == (0, 0, 0)


def test_the_middle_is_kept_at_its_aspect(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, :10, 0], wide[:, 10:20, 1], wide[:, 20:, 2] = 255, 255, 255
    for image in (wide, wide.transpose(1, 0, 2)):
        pixels = read_picture(saved(tmp_path, Image.fromarray(image)), (5, 5), fit="crop")
        inside = pixels[1:-1, 1:-1]  # at the border the filter reaches beyond the middle
        np.testing.assert_array_equal(inside, np.broadcast_to(np.uint8([0, 255, 0]), (3, 3, 3)))


def test_all_of_it_is_kept_in_a_border_of_the_colour_of_its_edge(tmp_path):
    framed = np.full((10, 30, 3), (9, 80, 200), np.uint8)
    framed[2:8, 2:28] = 255
    for image in (framed, framed.transpose(1, 0, 2)):
        path = saved(tmp_path, Image.fromarray(image))
        expected = np.full((30, 30, 3), (9, 80, 200), np.uint8)
        inside = (slice(10, 20), slice(None)) if image is framed else (slice(None), slice(10, 20))
        expected[inside] = image
        np.testing.assert_array_equal(read_picture(path, (30, 30)), expected)
    grey = saved(tmp_path, Image.fromarray(GREY))
    assert read_picture(grey, (9, 9)).shape == (9, 9, 1)


def test_little_is_cut_off_without_a_border(tmp_path):
    nearly, apart = (saved(tmp_path, Image.fromarray(random_bytes(10, w, 3)), f"{w}.png") for w in (11, 12))
    for path, alike in ((nearly, True), (apart, False)):
        padded, cropped = (read_picture(path, (10, 10), fit=fit) for fit in ("pad", "crop"))
        assert (padded == cropped).all() == alike


@pytest.mark.parametrize("size", [(6, 9), (3, 4), (12, 5), (1, 1)])
def test_size_is_height_and_width(tmp_path, size):
    pixels = read_picture(saved(tmp_path, Image.fromarray(COLOUR)), size)
    assert pixels.shape == (*size, 3)
    assert size != (6, 9) or (pixels == COLOUR).all()


def damaged(tmp_path, kind):
    whole = saved(tmp_path, Image.fromarray(random_bytes(40, 40, 3)), f"whole.{kind}").read_bytes()
    return put(tmp_path / f"broken.{kind}", whole[: len(whole) // 2])


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "bmp", "webp", "tif"])
def test_half_a_file_is_named(tmp_path, kind):
    with pytest.raises(ValueError, match=rf"broken\.{kind} cannot be read as an image .*; repair or remove it"):
        read_picture(damaged(tmp_path, kind))


@pytest.mark.parametrize("content", [b"", b"this is no image"])
def test_no_image_is_named(tmp_path, content):
    path = put(tmp_path / "a.png", content)
    with pytest.raises(ValueError, match=r"a\.png cannot be read as an image"):
        read_picture(path)
    assert picture_size(path) is None


@pytest.mark.parametrize("pixels", [np.float32([[0.5]]), np.int32([[70000]])])
def test_pixels_of_unknown_range_are_refused(tmp_path, pixels):
    with pytest.raises(ValueError, match="save it with 8 or 16 bits"):
        read_picture(saved(tmp_path, Image.fromarray(pixels), "a.tif"))
