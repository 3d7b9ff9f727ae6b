"""Metrics of predicted class probabilities (N, K) against labels (N,)."""

from __future__ import annotations

import numpy as np


def top_error(probabilities: np.ndarray, labels: np.ndarray, k: int = 1) -> float:
    """Share of images whose label is not among the k most probable classes."""
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    return float(np.mean(~(best == labels[:, None]).any(axis=1)))


def nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log probability of the label, in nats. Probabilities count as at least the least float32."""
    own = probabilities[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.maximum(own.astype(float), np.finfo(np.float32).tiny))))


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """ECE: |share right − mean confidence| within equal bins of confidence, weighted by the images in each."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(right[index == b].sum() - confidence[index == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(labels))
