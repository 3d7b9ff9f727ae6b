"""Where and how precisely to compute: to be said before anything is computed."""

from __future__ import annotations

import os
from typing import Literal

from tickgp.errors import UsageError

Device = Literal["cpu", "gpu"] | None


def set_up(device: Device, *, float64: bool, check: bool = True) -> None:
    """Compute on `device`, by default a GPU if there is one, in single or double precision.

    What is compiled is kept in the user's cache folder: the next run with the same shapes starts at once. check: see
    now whether there is that device, and take its memory.
    """
    import jax

    from tickgp.data.locate import cache_folder

    jax.config.update("jax_enable_x64", float64)
    if device is not None:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
        if check:
            _check(device)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # many small programs take long together


def check_elsewhere(device: Device) -> None:
    """See in another process whether there is that device: this one leaves its memory to others."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        other.submit(set_up, device, float64=False).result()


def _check(device: str) -> None:
    import jax

    try:
        jax.devices()
    except Exception as error:  # jax says in several ways that a platform is missing
        why = f" ({error})" if str(error) else ""
        raise UsageError(f"no {device} can be used{why}; leave --device out, or install tickgp[cuda13]") from None
