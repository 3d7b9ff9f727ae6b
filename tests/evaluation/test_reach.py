"""Location kernels that are not known to be stationary: the report and the tables do without their crossings."""

import jax.numpy as jnp
import numpy as np
import pytest
from gp import tiny

from tickgp.evaluation.reach import agreement, crossings_across
from tickgp.evaluation.report_model import model_sections
from tickgp.evaluation.words import describe
from tickgp.experiments.run_gp import learned_location
from tickgp.gp.kernels import AbstractKernel, Matern32, SquaredExponential
from tickgp.gp.likelihoods import Softmax
from tickgp.gp.params import Positive
from tickgp.gp.patches import PatchGrid


class Polynomial(AbstractKernel):
    """(1 + scale² a·b)²."""

    scale: Positive

    def __call__(self, a, b):
        return (1 + a @ b.T * self.scale.value**2) ** 2

    def diag(self, a):
        return (1 + jnp.sum(a**2, axis=1) * self.scale.value**2) ** 2


ROUGH, SMOOTH = Polynomial(Positive(0.1)), SquaredExponential(1.0, 2.0)


@pytest.mark.parametrize("kernel", [ROUGH, ROUGH + SMOOTH, ROUGH * SMOOTH])
def test_crossings_are_left_out(kernel):
    model = tiny.build("tick", Softmax(3), location=kernel)
    assert crossings_across(kernel, PatchGrid((6, 5, 1), (3, 3))) is None
    assert learned_location(model) is None
    assert "sign" not in describe(model)["Places"]
    assert {"places", "model"} < {section.name for section in model_sections(model)}


def test_a_sum_of_stationary_kernels_has_crossings_and_no_lengthscale():
    model = tiny.build("tick", Softmax(3), location=SMOOTH + Matern32(0.5, 1.0))
    assert learned_location(model) is None
    assert "change sign" in describe(model)["Places"]


def test_what_a_stationary_kernel_has_learned():
    learned = learned_location(tiny.build("tick", Softmax(3), location=SMOOTH))
    assert learned == pytest.approx({"lengthscale": 2.0, "zero_crossings": 1 / np.pi, "width": 5}, rel=1e-5)


def test_agreement_is_a_correlation():
    """(1 + 0)² / (1 + |b|²/100) for the polynomial, which is not stationary."""
    offsets = np.array([[0.0, 0.0], [10.0, 0.0], [30.0, 40.0]])
    np.testing.assert_allclose(agreement(ROUGH, offsets), [1, 1 / 2, 1 / 26], rtol=1e-5)
