"""Where and how precisely to compute: to be said before anything is computed."""

from __future__ import annotations

import os
from typing import Literal

Device = Literal["cpu", "gpu"] | None


def set_up(device: Device, *, float64: bool) -> None:
    """Compute on `device`, by default a GPU if there is one, in single or double precision.

    What is compiled is kept in the user's cache folder: the next run with the same shapes starts at once.
    """
    if device is not None:
        os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[device]
    import jax

    from tickgp.data.locate import cache_folder

    jax.config.update("jax_enable_x64", float64)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
