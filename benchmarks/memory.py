"""The main memory of this process at its worst moment, for contenders that compute on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from pathlib import Path


class PeakMemory:
    """Bytes, most of them above those in use when this was made: with libraries and data loaded, but no model yet."""

    def __init__(self) -> None:
        _forget()
        self._before = _highest()
        self._until_settled = 0

    def settle(self) -> None:
        """What compilation needed is noted, and what follows is measured on its own."""
        self._until_settled = _highest()
        _forget()

    def answer(self) -> dict[str, int]:
        """In all; in all with libraries and data; and since it settled."""
        now = _highest()
        whole = max(now, self._until_settled)
        return {"peak": whole - self._before, "process_peak": whole, "steady_peak": now - self._before}


def _highest() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _forget() -> None:
    """What is free goes back to the system, and the highest so far becomes what is in use now. On Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
