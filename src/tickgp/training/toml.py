"""Settings as TOML: a section for each part of `Config`; what is not given keeps its default."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import cattrs
import tomli_w

from tickgp.training.config import Config, applies


def parse_config(text: str, source: str) -> Config:
    """The settings that `text` gives; unknown keys, wrong types and wrong choices are refused by name."""
    try:
        return converter().structure(tomllib.loads(text), Config)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source} is not TOML: {error}") from None
    except cattrs.BaseValidationError as error:
        found = cattrs.transform_error(error, format_exception=_reason)
        reasons = "; ".join(reason.removesuffix(" @ $").replace(" @ $.", " at ") for reason in found)
        raise ValueError(
            f"{source} has settings that are not allowed: {reasons}; `tickgp train --help` lists all"
        ) from None


def read_config(path: Path) -> Config:
    """The settings in the file `path`."""
    if not path.is_file():
        raise ValueError(f"there is no settings file {path}; give --config a TOML file")
    try:
        return parse_config(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason}); save it as that") from None


def format_config(config: Config) -> str:
    """The settings as TOML; a setting that is None is left out, and one that the model does not have."""
    sections = converter().unstructure(config)
    model = {name: value for name, value in sections["model"].items() if applies(name, config.model.name)}
    return tomli_w.dumps({name: _given(value) for name, value in {**sections, "model": model}.items()})


def _given(value: Any) -> Any:
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def converter() -> cattrs.Converter:
    """Between settings and what TOML and JSON have: what is not given keeps its default, unknown names are refused."""
    found = cattrs.Converter(forbid_extra_keys=True)
    for kind, allowed in {int: int, float: int | float, bool: bool, str: str}.items():
        found.register_structure_hook(kind, _strict(kind, allowed))
    found.register_structure_hook(Path, lambda value, _: Path(value))
    found.register_unstructure_hook(Path, str)
    return found


def _strict(kind: type, allowed: Any) -> Callable[[Any, Any], Any]:
    """Takes what TOML says is of this kind: no 1.5 for a whole number, no "yes" for true."""

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{value!r} is not of type {kind.__name__}")
        return kind(value)

    return structure


def _reason(error: BaseException, kind: Any) -> str:
    if not isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        return str(error)
    return "; ".join(_unknown(name) for name in sorted(error.extra_fields))


def _unknown(name: str) -> str:
    """What to say of a setting that is not of this section: it may be of another, or have its name from a command."""
    written = name.replace("-", "_")
    homes = [f"[{part.name}]" for part in fields(Config) if hasattr(part.default_factory, written)]
    if hasattr(Config, written):
        homes.append("the beginning, before all sections")
    if not homes:
        return f"no setting is called {name}"
    return f"{name} belongs to {homes[0]}" if name == written else f"{name} is written {written}, in {homes[0]}"
