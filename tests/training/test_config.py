"""Settings that would do nothing, or cannot be, are refused."""

import math
from typing import get_args

import jax
import pytest

from tickgp.gp import inducing, variational
from tickgp.training import assemble, config
from tickgp.training.config import Config, DataConfig, ModelConfig, TrainingConfig, refuse_idle


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"name": "tick", "depth": 3},
            "depth 3 was given for the model tick, .* use deep-se or deep-conv",
        ),
        ({"name": "conv", "places": "uniform"}, "places uniform was given for the model conv"),
        ({"name": "se", "patch_size": 3}, "patch-size 3 was given for the model se"),
        ({"name": "deep-se", "channels": 4}, "channels 4 was given for the model deep-se"),
        ({"name": "tick", "hidden_mean_field": False}, "hidden-mean-field False was given for the model tick"),
        ({"name": "deep-tick", "width": 20}, "width 20 was given .* use deep-se"),
    ],
)
def test_settings_that_a_model_does_not_have(settings, words):
    with pytest.raises(ValueError, match=words):
        ModelConfig(**settings)


def test_a_rate_of_hidden_means_wants_hidden_layers():
    training = TrainingConfig(hidden_mean_rate=3.0)
    refuse_idle(Config(model=ModelConfig("deep-se"), training=training))
    with pytest.raises(ValueError, match=r"hidden-mean-rate 3.0 was given for the model tick, .* use a deep one"):
        refuse_idle(Config(model=ModelConfig("tick"), training=training))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decay_steps": 10.0}, "decay-steps 10.0 was given with the decay linear, .* use the decay inverse or step"),
        ({"decay": "inverse", "decay_factor": 2.0}, "decay-factor 2.0 was given with the decay inverse"),
    ],
)
def test_settings_that_a_decay_does_not_have(settings, words):
    with pytest.raises(ValueError, match=words):
        refuse_idle(Config(training=TrainingConfig(**settings)))


@pytest.mark.parametrize("settings", [{"fit": "crop"}, {"skip_bad_images": True}])
def test_settings_of_folders(settings):
    refuse_idle(Config(data=DataConfig("folder:photos", **settings)))
    with pytest.raises(ValueError, match=r"was given for mnist, .* leave it out, or use folder:PATH"):
        refuse_idle(Config(data=DataConfig("mnist", **settings)))


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (TrainingConfig, {"max_steps": 0}, "max-steps 0 was given; it must be above 0"),
        (TrainingConfig, {"patience": 10}, "at least the 100 steps of report-every"),
        (DataConfig, {"validation_share": 1.0}, "validation-share 1.0 was given"),
        (Config, {"max_unusual": 1.0}, "max-unusual 1.0 was given; it must be at least 0 and below 1"),
        (Config, {"seed": -1}, "seed -1 was given; it must be from 0 to 4294967295"),
        (Config, {"seed": 2**32 + 5}, "seed 4294967301 was given; it must be from 0 to 4294967295"),
        (Config, {"max_error": 0.0}, "max-error 0.0 was given"),
        (Config, {"confidence": 95.0}, "confidence 95.0 was given"),
        (Config, {"prediction_samples": 0}, "prediction-samples 0 was given; it must be above 0 and finite"),
        (ModelConfig, {"variance": math.inf}, "variance inf was given; it must be above 0 and finite"),
        (ModelConfig, {"hidden_q_mu": -3.0}, "hidden-q-mu -3.0 was given; it must be at least 0 and finite"),
        (TrainingConfig, {"learning_rate": math.nan}, "learning-rate nan was given; it must be above 0 and finite"),
    ],
)
def test_numbers_out_of_range(kind, settings, words):
    with pytest.raises(ValueError, match=words):
        kind(**settings)


def test_different_seeds_give_different_keys():
    keys = {tuple(jax.random.key_data(jax.random.key(Config(seed).seed)).tolist()) for seed in (0, 5, 2**31, 2**32 - 1)}
    assert len(keys) == 4


@pytest.mark.parametrize(("patience", "window"), [(None, None), (100, 1), (200, 2), (201, 3), (299, 3)])
def test_patience_is_at_least_what_was_asked_for(patience, window):
    """In reports, of 100 steps each."""
    assert TrainingConfig(patience=patience, report_every=100).window == window


def test_choices_are_those_of_the_library():
    """They are written twice, because the command line must not wait for jax."""
    assert config.Sampling == variational.Sampling
    assert config.Initialiser == inducing.Initialiser
    assert set(get_args(config.KernelName)) == set(assemble._KERNELS)
