"""Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

CLOSED = {signal.SIGHUP} if hasattr(signal, "SIGHUP") else set()
"""What a terminal that is closed sends, where there is such a signal."""


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Each of these signals asks training to end after its current step; a second Ctrl-C ends at once.

    A SIGHUP that is ignored, as by `nohup`, still is.
    """
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):  # whoever would read it has gone
            print("stopping after this step, or after testing; again to stop at once", file=sys.stderr, flush=True)

    heard = {number for number in CLOSED if signal.getsignal(number) != signal.SIG_IGN}
    old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, *heard)}
    try:
        yield lambda: asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
