"""One image file, as it looks to a person: upright, 8 bits, on white."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

Size = tuple[int, int]
"""Height and width."""
Fit = Literal["pad", "crop"]
"""What to do with a picture of another shape than is needed: show all of it with a border, or cut out its middle."""

LITTLE = 0.1  # share of a picture that may be cut off without a border: a thin one would show more than it saves
ORIENTATION = 0x0112  # EXIF tag; from 5 on, the picture lies on its side


def read_picture(path: Path, size: Size | None = None, *, fit: Fit = "pad") -> np.ndarray:
    """Bytes (H, W, 1) of a grey picture or (H, W, 3) of one in colour; the first, where a file holds several.

    Turned as its EXIF data says; transparent parts on white; palettes and CMYK as RGB; 16 bits cut to 8. With `size`
    it is scaled to that. To `pad`, it gets a border in the colour of its edge, unless at most a tenth of it is lost
    when it is cropped; to `crop`, the largest centred part of that shape is taken. A picture is grey when its pixels
    are, however the file stores them.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            image = _flat(ImageOps.exif_transpose(opened))
    except Exception as error:  # a damaged file may fail anywhere in its decoder, in any way
        raise ValueError(f"{path} cannot be read as an image ({_reason(error)}); repair or remove it") from error
    if size is not None:
        image = _fitted(image, (size[1], size[0]), fit)
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


def _fitted(image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    """`image` scaled to `size` (width, height) at its own aspect."""
    from PIL import Image, ImageOps

    across, down = size[0] / image.width, size[1] / image.height
    if fit == "crop" or min(across, down) >= (1 - LITTLE) * max(across, down):
        return ImageOps.fit(image, size, method=Image.Resampling.BICUBIC)
    inner = [max(1, round(min(across, down) * side)) for side in image.size]
    whole = Image.new("RGB", size, _edge_colour(np.asarray(image)))
    scaled = image.resize((inner[0], inner[1]), Image.Resampling.BICUBIC)
    whole.paste(scaled, ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return whole


def _edge_colour(pixels: np.ndarray) -> tuple[int, ...]:
    """The median of the pixels at the four sides, channel by channel."""
    sides = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return tuple(int(level) for level in np.median(sides, axis=0))


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
