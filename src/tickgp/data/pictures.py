"""One image file, as it looks to a person: upright, 8 bits, on white."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

Size = tuple[int, int]
"""Height and width."""

ORIENTATION = 0x0112  # EXIF tag; from 5 on, the picture lies on its side


def read_picture(path: Path, size: Size | None = None) -> np.ndarray:
    """Bytes (H, W, 1) of a grey picture or (H, W, 3) of one in colour; the first, where a file holds several.

    Turned as its EXIF data says; transparent parts on white; palettes and CMYK as RGB; 16 bits cut to 8. With `size`
    the largest centred part of that shape is taken and scaled to it. A picture is grey when its pixels are, however
    the file stores them.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            image = _flat(ImageOps.exif_transpose(opened))
    except Exception as error:  # a damaged file may fail anywhere in its decoder, in any way
        raise ValueError(f"{path} cannot be read as an image ({_reason(error)}); repair or remove it") from error
    if size is not None:
        image = ImageOps.fit(image, (size[1], size[0]), method=Image.Resampling.BICUBIC)
    pixels = np.asarray(image)
    return pixels[..., :1] if (pixels == pixels[..., :1]).all() else pixels


def picture_size(path: Path) -> Size | None:
    """Height and width of the upright picture, from its header alone; None if that cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            lies = image.getexif().get(ORIENTATION, 1) >= 5
            return (image.width, image.height) if lies else (image.height, image.width)
    except Exception:  # as above; whoever reads the picture gets the error
        return None


def _flat(image: Image.Image) -> Image.Image:
    """RGB, 8 bits, opaque."""
    from PIL import Image

    if image.mode.startswith("I"):
        image = Image.fromarray(_eight_bits(np.asarray(image)))
    if image.mode == "F":
        raise ValueError("its pixels are floats: save it with 8 or 16 bits")
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _eight_bits(pixels: np.ndarray) -> np.ndarray:
    """0 … 65535 as 0 … 255."""
    if pixels.min() < 0 or pixels.max() > 65535:
        raise ValueError(f"its pixels go from {pixels.min()} to {pixels.max()}: save it with 8 or 16 bits")
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
