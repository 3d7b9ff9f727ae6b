"""The numbers printed in the paper: V. Dutordoir et al., AISTATS 2020, tables 1 to 3 and section 4.3.

With the digits printed there. Errors in per cent; NLL in nats per image, where table 1 prints ten times that; negative
ELBO in thousands.
"""

from __future__ import annotations

_TABLE1 = {
    "mnist": {
        "se": ("2.31", "0.69", "0.35", "0.060", "1.86"),
        "conv": ("1.70", "0.49", "0.19", "0.057", "1.97"),
        "tick": ("0.83", "0.11", "0.05", "0.029", "1.70"),
        "bcnn": ("0.91", "0.22", "0.05", "0.035", "2.58"),
    },
    "fashion-mnist": {
        "se": ("12.15", "3.67", "1.21", "0.268", "1.90"),
        "conv": ("11.06", "3.18", "1.11", "0.252", "1.90"),
        "tick": ("10.01", "2.69", "0.92", "0.228", "1.89"),
        "bcnn": ("8.31", "2.17", "0.75", "0.245", "2.10"),
    },
    "cifar10-grey": {
        "se": ("58.24", "38.91", "27.18", "1.556", "2.20"),
        "conv": ("41.65", "24.09", "14.93", "1.168", "2.12"),
        "tick": ("37.82", "20.52", "12.21", "1.056", "2.10"),
        "bcnn": ("37.44", "21.48", "12.91", "1.116", "2.23"),
    },
}
_TABLE3 = {
    "conv": ("36.72", "16.63", "9.10", "1.027", "2.221"),
    "cnn": ("14.44", "5.27", "1.95", "2.115", "14.614"),
    "tick": ("16.26", "5.71", "1.76", "0.474", "1.941"),
}
_METRICS = ("top1_error", "top2_error", "top3_error", "nll", "nll_misses")

TABLE1 = {
    dataset: {model: dict(zip(_METRICS, numbers, strict=True)) for model, numbers in models.items()}
    for dataset, models in _TABLE1.items()
}
TABLE3 = {model: dict(zip(_METRICS, numbers, strict=True)) for model, numbers in _TABLE3.items()}

TABLE2: dict[str, dict[str, dict[int, dict[str, str]]]] = {
    dataset: {
        kernel: {
            depth: dict(zip(("top1_error", "nll", "negative_elbo"), numbers, strict=True))
            for depth, numbers in enumerate(depths, start=1)
        }
        for kernel, depths in kernels.items()
    }
    for dataset, kernels in {
        "mnist": {
            "conv": (("1.87", "0.06", "8.29"), ("0.96", "0.04", "5.37"), ("0.93", "0.03", "5.045")),
            "tick": (("1.19", "0.04", "5.83"), ("0.67", "0.02", "4.25"), ("0.64", "0.02", "4.19")),
        },
        "cifar10": {
            "conv": (("41.06", "1.17", "65.72"), ("28.60", "0.84", "52.81"), ("25.33", "0.74", "49.38")),
            "tick": (("37.10", "1.08", "63.51"), ("25.59", "0.75", "48.31"), ("23.83", "0.69", "47.53")),
        },
    }.items()
}
"""Dataset, kernel, depth."""

GROWING_CNN = {
    1: {"top1_error": "1.93", "nll": "0.07"},
    2: {"top1_error": "1.04", "nll": "0.03"},
    3: {"top1_error": "0.86", "nll": "0.04"},
}
DEEP_SE = {"mnist": {"top1_error": "2"}, "cifar10": {"top1_error": "52.74"}}
"""The text has accuracies: 98 % and 47.26 %."""
