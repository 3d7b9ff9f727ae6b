"""Settings that would do nothing, or cannot be, are refused."""

import pytest

from tickgp.training.config import Config, DataConfig, ModelConfig, TrainingConfig


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
        ({"name": "deep-tick", "width": 20}, "width 20 was given .* use deep-se"),
    ],
)
def test_settings_that_a_model_does_not_have(settings, words):
    with pytest.raises(ValueError, match=words):
        ModelConfig(**settings)


def test_a_rate_of_hidden_means_wants_hidden_layers():
    training = TrainingConfig(hidden_mean_rate=3.0)
    assert Config(model=ModelConfig("deep-se"), training=training).training == training
    with pytest.raises(ValueError, match="hidden-mean-rate 3 was given for the model tick, which has no hidden layer"):
        Config(model=ModelConfig("tick"), training=training)


@pytest.mark.parametrize("name", ["se", "deep-se"])
def test_the_defaults_of_earlier_runs_are_allowed(name):
    """They were those of every model, and stand in their settings."""
    hidden = {"hidden_stride": 1, "hidden_variance": 1.0, "hidden_lengthscale": 1.0, "hidden_mean_field": False}
    assert ModelConfig(name, stride=1, **hidden).stride == 1
    with pytest.raises(ValueError, match=f"stride 2 was given for the model {name}"):
        ModelConfig(name, stride=2)


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (TrainingConfig, {"max_steps": 0}, "max-steps 0 was given; it must be above 0"),
        (TrainingConfig, {"patience": 10}, "at least the 100 steps of report-every"),
        (DataConfig, {"validation_share": 1.0}, "validation-share 1.0 was given"),
        (Config, {"max_error": 0.0}, "max-error 0.0 was given"),
        (Config, {"confidence": 95.0}, "confidence 95.0 was given"),
    ],
)
def test_numbers_out_of_range(kind, settings, words):
    with pytest.raises(ValueError, match=words):
        kind(**settings)
