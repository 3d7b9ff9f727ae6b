"""How what is costly is compiled."""

from __future__ import annotations

import functools

import jax

jit = functools.partial(jax.jit, compiler_options={"xla_gpu_enable_triton_gemm": False})
"""`jax.jit` without a search for the best of Triton's matrix products on a GPU: it took two thirds of the time of
compiling or more, and training was no faster for it (docs/performance.md)."""
