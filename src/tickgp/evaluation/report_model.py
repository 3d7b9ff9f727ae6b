"""The sections of a report on what the model has learned."""

from __future__ import annotations

import numpy as np

from tickgp.evaluation.markup import Section, paragraph, plot, text
from tickgp.evaluation.plots_model import inducing_patches, inducing_places, patch_weights, translation_insensitivity
from tickgp.evaluation.words import describe
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.inducing import InducingPatches
from tickgp.gp.layers import Layer
from tickgp.gp.models import DeepGP


def model_sections(model: DeepGP) -> list[Section]:
    """Those that this model has something to show for."""
    made = [_patches(model), _places(model), _weights(model), _words(model)]
    return [section for section in made if section is not None]


def _patches(model: DeepGP) -> Section | None:
    layers, body = model.layers, ""
    for number, layer in enumerate(layers, start=1):
        body += _layer_patches(layer, "" if len(layers) == 1 else f"Layer {number} of {len(layers)}")
    if not body:
        return None
    said = paragraph(
        "The model knows images by comparing their patches with these examples, its inducing patches. Training may "
        "change them into patches that occur in no image."
    )
    return Section("patches", "What it compares images with", said + body)


def _layer_patches(layer: Layer, which: str) -> str:
    inducing, covariance = layer.gp.inducing[0], layer.gp.kernel.covariances[0]
    if not (isinstance(inducing, InducingPatches) and isinstance(covariance, Convolutional | MultiOutputConvolutional)):
        return ""
    grid, C = covariance.grid, covariance.grid.image_shape[2]
    said = "" if C in (1, 3) else f"Of {C} channels the first is shown. "
    figures = plot(inducing_patches(inducing, grid), f"{which} Inducing patches.".strip())
    if inducing.places is not None:
        said += "Each dot is the middle of a patch; the frame is the image, the grey square the size of a patch."
        places = inducing_places(np.asarray(inducing.places.value, float), grid)
        figures += plot(places, f"{which} Where the inducing patches sit in the image.".strip())
    heading = f"<h3>{text(which)}</h3>" if which else ""
    return heading + (paragraph(said) if said else "") + f'<div class="pair">{figures}</div>'


def _places(model: DeepGP) -> Section | None:
    covariance = model.layers[-1].gp.kernel.covariances[0]
    if not isinstance(covariance, Convolutional) or (location := covariance.response.location) is None:
        return None
    body = paragraph(
        "How far can a patch move before it means something else? The curve says how much the responses to two equal "
        "patches agree, by how far they are apart. A flat curve: places do not matter. A steep one: each place has its "
        "own meaning."
    )
    figure = translation_insensitivity(location, covariance.grid)
    alt = "Agreement of the responses to two equal patches against their distance."
    return Section("places", "Does it matter where a patch stands?", body + plot(figure, alt))


def _weights(model: DeepGP) -> Section | None:
    covariance = model.layers[-1].gp.kernel.covariances[0]
    if not isinstance(covariance, Convolutional) or covariance.weights is None:
        return None
    if np.ptp(np.asarray(covariance.weights.value)) < 1e-3:
        return None
    body = paragraph(
        "Each patch of an image has a weight in the scores, shown where the patch stands; those far from 0 count most, "
        "whether above (orange) or below (blue)."
    )
    figure = patch_weights(np.asarray(covariance.weights.value, float), covariance.grid)
    return Section("weights", "Which patches count", body + plot(figure, "Patch weights as an image."))


def _words(model: DeepGP) -> Section:
    facts = "\n".join(f"<dt>{text(topic)}</dt><dd>{text(said)}</dd>" for topic, said in describe(model).items())
    return Section("model", "The model in words", f"<dl>\n{facts}\n</dl>")
