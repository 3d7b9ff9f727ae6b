"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """`content` in the file `path`; whatever happens meanwhile, the file is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror}, {len(content):,} bytes); make that possible, or use another "
            "folder: all that was written before is whole"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
