"""Trees of arrays on disk: safetensors files that are whole or not there, each tensor named by its path in the tree.

Of a lower-triangular parameter, row by row, only what is not zero by its type: (M, M) becomes (M(M + 1)/2,).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tickgp.files import write_whole
from tickgp.gp.params import Triangular

Tree = TypeVar("Tree")

FORMAT = 4
"""What the tensors of a file and the words beside them mean, counted up whenever that changes."""


def save_tree(path: str | Path, tree: Tree, metadata: Mapping[str, str] | None = None) -> None:
    """Every array of `tree`, and a few words beside them."""
    arrays = _named(tree)
    words = {**(metadata or {}), "format": str(FORMAT), "sha256": _digest(arrays)}
    write_whole(Path(path), save(arrays, metadata=words))


def load_tree(path: str | Path, like: Tree) -> Tree:
    """The tree in the file `path`, which must have the arrays of `like`: the same names, shapes and types."""
    arrays, words = read_arrays(Path(path))
    check_format(Path(path), words)
    if words.get("sha256") != _digest(arrays):
        raise ValueError(f"{path} is damaged: its content is not what was written; use another copy")
    named = _named(like)
    wrong = sorted(set(named) ^ set(arrays)) or [
        name for name, a in named.items() if (a.shape, a.dtype) != (arrays[name].shape, arrays[name].dtype)
    ]
    if wrong:
        raise ValueError(
            f"{path} does not fit its model at {', '.join(wrong[:3])}; it was made with other settings (restore them) "
            "or by another version of tickgp"
        )

    def read(keys: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, Triangular):
            return jnp.asarray(arrays[_name(keys)])
        return jax.tree.map_with_path(lambda k, raw: _unpacked(arrays[_name((*keys, *k))], raw.shape), leaf)

    return jax.tree.map_with_path(read, like, is_leaf=_is_triangular)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All tensors of a safetensors file by name, and the words beside them."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_some(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """The tensors of these names of a safetensors file; a KeyError where one is not there."""
    with _opened(path) as file:
        if missing := set(names) - set(file.keys()):
            raise KeyError(f"no {', '.join(sorted(missing))}")
        return tuple(file.get_tensor(name) for name in names)


def read_words(path: Path) -> dict[str, str]:
    """The words beside the tensors of a safetensors file."""
    with _opened(path) as file:
        return file.metadata() or {}


def check_format(path: Path, words: Mapping[str, str]) -> None:
    """Refuse a file of another version. Files of other programs have no digest, and are left to whoever reads them."""
    made = words.get("format", "1")
    if "sha256" not in words or made == str(FORMAT):
        return
    if not made.isdecimal():
        raise ValueError(f"{path} is damaged: its words cannot be read (format {made!r}); use another copy")
    which = "an earlier" if int(made) < FORMAT else "a later"
    raise ValueError(f"{path} was made by {which} version of tickgp; use that one, or train again")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete safetensors file ({error}); use another copy") from None


def _named(tree: Tree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_triangular)
    named: dict[str, np.ndarray] = {}
    for keys, leaf in leaves:
        if isinstance(leaf, Triangular):
            named |= {_name((*keys, *k)): _packed(raw) for k, raw in jax.tree_util.tree_leaves_with_path(leaf)}
        else:
            # safetensors writes the memory as it lies: an array that is a view of another order would be saved wrong.
            named[_name(keys)] = np.ascontiguousarray(leaf).reshape(np.shape(leaf))
    return named


def _is_triangular(node: Any) -> bool:
    return isinstance(node, Triangular)


def _packed(raw: Any) -> np.ndarray:
    rows, columns = np.tril_indices(raw.shape[-1])
    return np.ascontiguousarray(np.asarray(raw)[..., rows, columns])


def _unpacked(packed: np.ndarray, shape: tuple[int, ...]) -> jax.Array:
    raw, (rows, columns) = np.zeros(shape, packed.dtype), np.tril_indices(shape[-1])
    raw[..., rows, columns] = packed
    return jnp.asarray(raw)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()
