"""The models as a scikit-learn classifier."""

from tickgp.estimator.classifier import TickClassifier

__all__ = ["TickClassifier"]
