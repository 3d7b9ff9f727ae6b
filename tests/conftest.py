"""Every annotation in the library is a check here: shapes by jaxtyping, types by beartype."""

import os
from collections.abc import Iterator

# Most of the time of these tests is compilation: of tiny programs, which gain nothing from being optimised.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"

from jaxtyping import install_import_hook

install_import_hook("tickgp", "beartype.beartype")

import jax
import pytest


@pytest.fixture
def float64() -> Iterator[None]:
    """Models and arrays made in this test are float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)
