"""How, and for what, things are compiled."""

from __future__ import annotations

import functools

import jax

jit = functools.partial(jax.jit, compiler_options={"xla_gpu_enable_triton_gemm": False})
"""`jax.jit` without a search for the best of Triton's matrix products on a GPU: it took two thirds of the time of
compiling or more, and training was no faster for it (docs/performance.md)."""


def platform() -> str:
    """The kind of device, `cpu` or `gpu`, that a program traced now will run on.

    That is the default device, even where single arrays are on another.
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend()
    name = device.split(":")[0] if isinstance(device, str) else device.platform
    return {"cuda": "gpu", "rocm": "gpu"}.get(name, name)
