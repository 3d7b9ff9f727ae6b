"""When training has come to rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def at_rest(elbos: Sequence[float | None], window: int) -> bool:
    """Whether the mean of the last `window` estimates of the ELBO is no better than that of the `window` before.

    Minibatch estimates are noisy; means of many of them are less so. Those that are missing are left out.
    """
    if len(elbos) < 2 * window:
        return False
    values = np.asarray(elbos[-2 * window :], float).reshape(2, window)
    before, now = (part[np.isfinite(part)] for part in values)
    return bool(len(before) and len(now) and now.mean() <= before.mean())
