"""`TickClassifier`: the models as a scikit-learn classifier."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tickgp.data.contents import Split
from tickgp.data.splits import stratified_split
from tickgp.estimator.files import Fitted, load_fitted, save_fitted
from tickgp.estimator.inputs import Inputs, Shape, as_rows, image_shape, square, warn_of_little_range
from tickgp.estimator.settings import check_params, run_config
from tickgp.evaluation.familiarity import Familiarity
from tickgp.evaluation.handover import HeldOut, images_needed
from tickgp.gp.images import warn_caller
from tickgp.gp.models import DeepGP
from tickgp.gp.predict import Prediction
from tickgp.runs.model_file import TrainedModel
from tickgp.training.assemble import build_model, train_settings
from tickgp.training.config import Config, ModelName
from tickgp.training.loop import train
from tickgp.training.stopping import at_rest


class TickClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify images by (deep) convolutional Gaussian processes, and say which of them a person should check.

    X is images (N, H, W) or (N, H, W, C), bytes or floats between 0 and 1; the same laid flat, (N, H·W·C), with
    `image_shape`; or rows (N, D) of any numbers, which are no images: these are scaled to mean 0 and deviation 1,
    feature by feature, numbers more than 10 deviations away count as 10, and the model must be `se` or `deep-se`.
    Labels may be numbers, names, or true and false. It computes in double precision if jax does (`jax_enable_x64`).

    Parameters that the chosen model does not have, such as `depth` of "tick", are ignored.

    Parameters
    ----------
    model : "tick", "conv", "se", "deep-tick", "deep-conv", "deep-se" or "auto"
        Kernel and depth. "auto" is "tick" for images and "se" for rows.
    depth : int
        Layers of a deep model.
    patch_size : int or None
        Height and width of a patch; None is 5, or 3 for images below 16 pixels.
    stride : int or None
        Step from one patch of the last layer to the next; None is the least that leaves at most 16 along the shorter
        side of what it sees (for patches of 5 pixels 1 up to 20 pixels, 2 up to 36, and so on), no more than the size
        of a patch. With half the stride training takes many times as long.
    hidden_stride : int or None
        Step from one patch to the next in the layers below; None as for `stride`.
    num_inducing : int
        Inducing patches (or points) of each layer: more are better and slower. Models on whole images or rows take
        as many as there are different ones, if these are fewer.
    likelihood : "softmax", "robustmax" or "bernoulli"
        How labels follow from the model's outputs; bernoulli is for two classes.
    standardise : bool
        Shift and scale every channel of the images to mean 0 and deviation 1. Rows always are.
    image_shape : (height, width), (height, width, channels) or None
        What the rows of X are, if they are images laid flat.
    max_steps, batch_size, learning_rate
        Steps of training, images for each, and how far they go at the start; at the last step that has fallen to 0.
    patience : int or None
        Stop early when the mean ELBO of this many steps, at least 100, is no better than that of as many before.
    validation_share : float
        Share of the training images to set aside for `hand_over`, class by class.
    max_error, confidence : float
        Error that `hand_over` allows where the model decides by itself, and the confidence that it stays below.
    max_unusual : float
        Share of the images set aside, but at least one, that is too far from training for `hand_over`: with more,
        images of other kinds are found more often, and more of the usual ones are for a person.
    prediction_samples : int
        Draws behind each predicted probability; of the last layer there are 64 for each of them.
    random_state : int, RandomState or None
        Where randomness comes from; with an int every fit gives the same.
    verbose : bool
        Print where training stands.

    Attributes
    ----------
    classes_ : the labels, sorted
    n_features_in_ : numbers in an image or row
    n_iter_ : steps that were done
    elbo_ : the mean ELBO of every 100 steps
    trained_ : the model, with its settings
    inputs_ : how X becomes what the model takes
    """

    classes_: Shaped[np.ndarray, " K"]
    n_features_in_: int
    n_iter_: int
    elbo_: list[float]
    trained_: TrainedModel
    inputs_: Inputs

    def __init__(
        self,
        model: Any = "auto",
        *,
        depth: Any = 2,
        patch_size: Any = None,
        stride: Any = None,
        hidden_stride: Any = None,
        num_inducing: Any = 100,
        likelihood: Any = "softmax",
        standardise: Any = False,
        image_shape: Any = None,
        max_steps: Any = 1500,
        batch_size: Any = 128,
        learning_rate: Any = 0.03,
        patience: Any = 200,
        validation_share: Any = 0.0,
        max_error: Any = 0.01,
        confidence: Any = 0.95,
        max_unusual: Any = 0.01,
        prediction_samples: Any = 20,
        random_state: Any = None,
        verbose: Any = False,
    ) -> None:
        # scikit-learn asks a constructor to store what it is given, whatever that is: `fit` checks it.
        self.model = model
        self.depth = depth
        self.patch_size = patch_size
        self.stride = stride
        self.hidden_stride = hidden_stride
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.standardise = standardise
        self.image_shape = image_shape
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_share = validation_share
        self.max_error = max_error
        self.confidence = confidence
        self.max_unusual = max_unusual
        self.prediction_samples = prediction_samples
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> TickClassifier:
        """Train on images or rows X and their labels y. If that fails, what was fitted before stays as it was."""
        before = dict(vars(self))
        try:
            return self._fit(X, y)
        except BaseException:  # scikit-learn notes the number and the names of features before anything is trained
            for name in vars(self).keys() - before.keys():
                delattr(self, name)
            for name, value in before.items():
                setattr(self, name, value)
            raise

    def _fit(self, X: Any, y: Any) -> TickClassifier:
        check_params(self.get_params())
        shape = image_shape(X, self.image_shape)
        rows, y = validate_data(self, as_rows(X), y)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has 1 class, {classes[0]}; give examples of at least 2 classes")
        name = self._model_name(shape)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        kept, aside = self._split(labels, _names(classes), seed)
        inputs = Inputs.of(rows[kept], shape)
        images = inputs(rows)
        if shape is not None and not self.standardise:
            warn_of_little_range(images)
        config = run_config(self.get_params(), name, images[kept], seed)
        new = _new(images[aside], images[kept])
        if len(aside):
            _warn_of_too_few(int(new.sum()), config)
        model, bounds, steps = self._train(config, images[kept], labels[kept], len(classes))
        trained = TrainedModel(model, config, _names(classes), inputs.shape)
        if len(aside):
            trained = replace(trained, familiarity=Familiarity.of(model, images[kept], labels[kept], len(classes)))
            prediction = trained.predict(images[aside])
            distance = np.asarray(prediction.distance)
            held_out = HeldOut.of("validation", prediction.probabilities, distance, labels[aside], new)
            trained = replace(trained, held_out=held_out)
        self.classes_, self.inputs_, self.trained_ = classes, inputs, trained
        self.elbo_, self.n_iter_ = bounds, steps
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N K"]:
        """The probability of each of `classes_`, for each image or row: the same whatever stands beside it."""
        p = np.asarray(self._prediction(X).probabilities, float)
        return p / p.sum(axis=1, keepdims=True)  # 1 in double precision too

    def predict_log_proba(self, X: Any) -> Float[np.ndarray, "N K"]:
        """The logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Shaped[np.ndarray, " N"]:
        """The most probable label of each image or row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def hand_over(self, X: Any, max_error: float | None = None) -> Bool[np.ndarray, " N"]:
        """Whether a person should look at each image: then the others are wrong at most in a share of `max_error`.

        This is promised with the model's `confidence`, for images like those that `validation_share` set aside, on
        which it was shown. Images that are unlike nearly all of these are for a person, however sure the model is.
        """
        check_is_fitted(self, "trained_")
        if self.trained_.held_out is None:
            raise ValueError(
                "no images were held out, so it is not known how far the model can be trusted; set some aside and fit "
                "again: TickClassifier(validation_share=0.2)"
            )
        rule = self.trained_.rule(max_error)
        if rule.threshold is None:
            raise ValueError(rule.reason)
        prediction = self._prediction(X)
        return rule.hand_over(prediction.probabilities.max(axis=1), prediction.distance)

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier to `folder`, for `load` and for `tickgp predict`. Nothing is pickled."""
        check_is_fitted(self, "trained_")
        names = tuple(self.feature_names_in_) if "feature_names_in_" in vars(self) else None
        save_fitted(
            Path(folder),
            Fitted(self.get_params(), self.classes_, names, self.inputs_, self.trained_, self.n_iter_, self.elbo_),
        )

    @classmethod
    def load(cls, folder: str | Path) -> TickClassifier:
        """The classifier that `save` wrote, with its parameters."""
        fitted = load_fitted(Path(folder))
        self = cls(**fitted.params)
        self.classes_, self.inputs_, self.trained_ = fitted.classes, fitted.inputs, fitted.trained
        self.n_iter_, self.elbo_, self.n_features_in_ = fitted.n_iter, fitted.elbo, math.prod(fitted.inputs.shape)
        if fitted.feature_names is not None:
            self.feature_names_in_ = np.array(fitted.feature_names, dtype=object)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _model_name(self, shape: Shape | None) -> ModelName:
        """What "auto" stands for; models of patches are refused for rows that are no images."""
        if shape is not None:
            return "tick" if self.model == "auto" else self.model
        likely = square(self.n_features_in_)
        if self.model not in ("auto", "se", "deep-se"):
            raise ValueError(
                f"model {self.model!r} looks at patches of images, and X has rows of {self.n_features_in_} numbers; "
                f"give image_shape=(height, width){f', such as {likely}' if likely else ''}, or model='se' for rows"
            )
        if self.model == "auto" and likely:
            warn_caller(
                f"rows of {self.n_features_in_} numbers are taken as features; if they are images laid flat, give "
                f"image_shape={likely}, and if not, model='se'"
            )
        return "se" if self.model == "auto" else self.model

    def _split(self, labels: np.ndarray, names: tuple[str, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Which images to train on, and which to set aside."""
        if not self.validation_share:
            return np.arange(len(labels)), np.arange(0)
        return stratified_split(labels, self.validation_share, seed, names)

    def _train(
        self, config: Config, images: np.ndarray, labels: np.ndarray, num_classes: int
    ) -> tuple[DeepGP, list[float], int]:
        """The trained model, its ELBO on the way, and the number of steps."""
        model_key, training_key, _ = jax.random.split(jax.random.key(config.seed), 3)
        model = build_model(config.model, images, num_classes, key=model_key)
        settings, bounds, steps = config.training, list[float](), 0
        for event in train(model, images, labels, **train_settings(settings), key=training_key):
            model, steps = event.state.model, event.step
            bounds.append(event.elbo)
            if self.verbose:
                print(f"step {event.step} of {settings.max_steps}: ELBO {event.elbo:.6g}, {event.seconds:.0f} s")
            if settings.window is not None and at_rest(bounds, settings.window):
                break
        return model, bounds, steps

    def _prediction(self, X: Any) -> Prediction:
        """What the trained model says of new images or rows."""
        check_is_fitted(self, "trained_")
        self.inputs_.check_like(X)
        return self.trained_.predict(self.inputs_(validate_data(self, as_rows(X), reset=False)))


def _warn_of_too_few(number: int, config: Config) -> None:
    """Say it before training if the images set aside cannot do what they are set aside for."""
    needed = images_needed(config.max_error, config.confidence, config.max_unusual)
    if number < needed:
        warn_caller(
            f"{number} images that are no copies are set aside, and `hand_over` needs at least {needed} to promise "
            f"an error below {config.max_error:g} and to take a share of {config.max_unusual:g} as unusual; set more "
            "aside (validation_share), or allow a larger error (max_error)"
        )


def _new(aside: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Which images that were set aside are no copies of others."""
    return Split(aside, np.zeros(len(aside), int)).is_new(Split(kept, np.zeros(len(kept), int)))


def _names(classes: np.ndarray) -> tuple[str, ...]:
    return tuple(map(str, classes))
