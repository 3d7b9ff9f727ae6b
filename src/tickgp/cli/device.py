"""Where and how precisely to compute: to be said before anything is computed."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Literal

from tickgp.errors import UsageError

Device = Literal["cpu", "gpu"] | None


def set_up(device: Device, *, float64: bool, alone: bool = True) -> None:
    """Compute on `device`, by default a GPU if there is one, in single or double precision.

    What is compiled is kept in the user's cache folder: the next run with the same shapes starts at once. If this
    process is not `alone` it takes nothing of a GPU's memory yet, and another one sees whether there is a GPU.
    """
    import jax

    from tickgp.data.locate import cache_folder

    jax.config.update("jax_enable_x64", float64)
    shared = device == "gpu" and not alone
    if shared:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            other.submit(set_up, device, float64=float64).result()
    if device is not None:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
        if not shared:
            _check(device)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # many small programs take long together


def _check(device: str) -> None:
    import jax

    try:
        jax.devices()
    except Exception as error:  # jax says in several ways that a platform is missing
        why = f" ({error})" if str(error) else ""
        raise UsageError(f"no {device} can be used{why}; leave --device out, or install tickgp[cuda13]") from None
