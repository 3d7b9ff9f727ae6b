from dataclasses import replace
from pathlib import Path

import pytest

from tickgp.training.config import Config, DataConfig, ModelConfig, TrainingConfig
from tickgp.training.toml import format_config, parse_config, read_config

OTHER = Config(
    seed=3,
    data=DataConfig(dataset="mnist", data_dir=Path("some/where")),
    model=ModelConfig(name="deep-conv", patch_size=4, weights=False, lengthscale=0.5),
    training=TrainingConfig(max_seconds=2.5, decay="step"),
)


@pytest.mark.parametrize("config", [Config(), OTHER])
def test_round_trip(config, tmp_path):
    (tmp_path / "config.toml").write_text(format_config(config))
    assert read_config(tmp_path / "config.toml") == config


def test_settings_that_a_model_does_not_have_are_not_written():
    """Else a model would be refused as soon as one of them had another default."""
    assert "channels" not in format_config(Config(model=ModelConfig("tick")))
    assert "channels" in format_config(Config(model=ModelConfig("deep-tick")))


def test_what_is_not_given_keeps_its_default():
    config = parse_config('seed = 7\n[model]\nname = "conv"\nvariance = 2\n', "here")
    assert config == replace(Config(), seed=7, model=ModelConfig(name="conv", variance=2.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sed = 1", "no setting is called sed"),
        ("[model]\nkernels = 1", "no setting is called kernels at model;"),
        ("max_steps = 3", r"max_steps belongs to \[training\];"),
        ("[training]\nmax-steps = 3", r"max-steps is written max_steps, in \[training\]"),
        ("[model]\nseed = 3", "seed belongs to the beginning, before all sections"),
        ('[model]\nname = "cnn"', "cnn not in literal"),
        ("[training]\nmax_steps = 1.5", "1.5 is not of type int"),
        ('[model]\nweights = "yes"', "'yes' is not of type bool"),
        ("[training]\nmax_steps = true", "True is not of type int"),
        ("seed = ", "here is not TOML"),
    ],
)
def test_wrong_settings_are_refused_by_name(text, words):
    with pytest.raises(ValueError, match=words):
        parse_config(text, "here")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no settings file .*nothing.toml"):
        read_config(tmp_path / "nothing.toml")


def test_another_encoding_is_told(tmp_path):
    (tmp_path / "sixteen.toml").write_text("seed = 1", encoding="utf-16")
    with pytest.raises(ValueError, match=r"sixteen\.toml is not UTF-8 .*; save it as that"):
        read_config(tmp_path / "sixteen.toml")
