"""Values computed once with GPflow (tests/fixtures/make_gpflow.py) for what both libraries have."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference

from tickgp.gp.convolution import Convolutional, PatchResponse
from tickgp.gp.covariances import Pointwise
from tickgp.gp.inducing import InducingPatches, InducingPoints
from tickgp.gp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax
from tickgp.gp.means import Zero
from tickgp.gp.models import DeepGP
from tickgp.gp.multioutput import LinearCoregionalization, Separate, Shared
from tickgp.gp.objective import elbo
from tickgp.gp.params import Real
from tickgp.gp.patches import PatchGrid
from tickgp.gp.variational import SparseGP

pytestmark = pytest.mark.usefixtures("float64")

STORED = json.loads((Path(__file__).parents[1] / "fixtures" / "gpflow_convolutional.json").read_text())
CONV, STATIONARY, MULTI = STORED["convolutional"], STORED["stationary"], STORED["multioutput"]
INPUTS = CONV["inputs"]
KINDS = {k.__name__: k for k in (SquaredExponential, Matern12, Matern32, Matern52)}
close = lambda a, b, tolerance=1e-9: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def given(name, where=INPUTS):
    return np.array(where[name], float)


def pixels(name):
    """GPflow's flat images are the rows of pixels one after the other."""
    return jnp.asarray(given(name).reshape(-1, *INPUTS["image_shape"], 1))


def convolutional(case=INPUTS):
    grid = PatchGrid((*INPUTS["image_shape"], 1), tuple(case["patch_shape"]))
    kernel = SquaredExponential(INPUTS["variance"], INPUTS["lengthscale"])
    return Convolutional(grid, PatchResponse(kernel), Real(given("weights", case)))


def whitened(Kuu, q_mu, q_sqrt):
    """q(v) of GPflow's q(u): each latent's Lu⁻¹ q_mu and Lu⁻¹ q_sqrt."""
    inverse = np.linalg.inv(np.linalg.cholesky(Kuu + STORED["jitter"] * np.eye(Kuu.shape[-1])))
    return np.einsum("...mk,...k->...m", inverse, q_mu), inverse @ q_sqrt


def conv_model(likelihood, case=None):
    """The model of all convolutional cases; with `case` its q is that of u and not of v."""
    K = likelihood.num_outputs
    q = (given("q_mu").T, given("q_sqrt"))
    if case:
        q = whitened(given("Kuu", CONV["covariances"]), given("q_mu", case).T, given("q_sqrt", case))
    q_mu, q_sqrt = (a[:K] for a in q)
    gp = SparseGP(Shared(convolutional()), (InducingPatches(Real(given("Z"))),), problems.full_rank(q_mu, q_sqrt))
    # GPflow's jitter is added as it is, ours is relative to the variance.
    return DeepGP((Layer(gp, Zero(K), (K,)),), likelihood, jitter=STORED["jitter"] / INPUTS["variance"])


@eqx.filter_jit
def evaluate(model, x, y, num_data, key):
    """q(f), the expectation of each datum and the ELBO."""
    f = model.propagate(x, key=key)
    return f, model.likelihood.expected_log_prob(f, y, key=key), elbo(model, x, y, num_data, key=key)


@pytest.mark.parametrize("case", ["covariances", "rectangular_corners"])
def test_convolutional_covariances(case):
    stored = CONV[case]
    prior = convolutional(stored if "patch_shape" in stored else INPUTS)
    Z, x = InducingPatches(Real(given("Z"))).value, pixels("X")
    np.testing.assert_array_equal(prior.grid.patches(x), given("patches", stored))
    Kuu, Kuf, Kff = jax.jit(lambda: (prior.Kuu(Z), prior.Kuf(Z, x), prior.Kff(x)))()
    close(Kuu, stored["Kuu"], 1e-12)
    close(Kuf[:, :, 0], stored["Kuf"], 1e-12)
    close(Kff[:, 0], stored["Kff_diag"], 1e-12)
    close(Kff[:, 0], np.diag(stored["Kff"]), 1e-12)


@pytest.mark.parametrize("case", [None, CONV["unwhitened"]], ids=["whitened", "unwhitened"])
def test_predictions_kl_and_elbo(case, key):
    model = conv_model(Gaussian(INPUTS["likelihood_variance"], 3), case)
    stored = case["predict_f_test"] if case else CONV["predict_f_test"]
    f, joint, kl = problems.posterior(model.layers[0].gp, pixels("X_test"), model.jitter)
    close(f.mean, stored["mean"])
    close(f.variance, stored["var"])
    close(jnp.moveaxis(joint.latent_covariance[:, :, 0, 0], 0, -1), stored["var"])
    close(kl, stored["prior_kl"])
    _, _, bound = evaluate(model, pixels("X"), jnp.asarray(given("Y")), 5, key)
    close(bound, case["elbo_gaussian"] if case else CONV["gaussian"]["elbo"])


def test_gaussian_likelihood(key):
    stored = CONV["gaussian"]
    model = conv_model(Gaussian(INPUTS["likelihood_variance"], 3))
    f, expectations, bound = evaluate(model, pixels("X"), jnp.asarray(given("Y")), stored["num_data"], key)
    close(f.mean, stored["f_mean"])
    close(f.variance, stored["f_var"])
    close(expectations, stored["variational_expectations"])
    close(bound, stored["elbo_num_data"])


CLASSIFIERS = {
    "bernoulli_exact_probit": (Bernoulli(), "Y_binary", reference.bernoulli_expected_log_prob),
    "multiclass_no_squash": (RobustMax(3, 1e-3), "Y_class", reference.robustmax_expected_log_prob),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classification_likelihoods(name, key):
    """GPflow has 20 quadrature nodes; how far they are from a fine grid is how far we may be from GPflow, twice."""
    stored, (likelihood, labels, exact) = CONV[name], CLASSIFIERS[name]
    y = given(labels)[:, 0].astype(int)
    f, expectations, bound = evaluate(conv_model(likelihood), pixels("X"), jnp.asarray(y), 5, key)
    close(f.mean, stored["f_mean"])
    close(f.variance, stored["f_var"])
    moments = (np.squeeze(given(part, stored)) for part in ("f_mean", "f_var"))
    fine = [exact(*row) for row in zip(*moments, y, strict=True)]
    theirs = given("variational_expectations", stored)
    tolerance = 2 * np.max(np.abs(theirs - fine)) + 1e-8
    assert tolerance < 1e-4
    np.testing.assert_allclose(expectations, theirs, atol=tolerance)
    np.testing.assert_allclose(bound, stored["elbo"], atol=len(y) * tolerance)


def test_robustmax_predictions():
    """P(y = k) = p (1 − ε) + (1 − p) ε / (K − 1), p = P(f_k is the largest); the tolerance as above."""
    stored, f = CONV["multiclass_no_squash"], CONV["predict_f_test"]
    mean, variance, epsilon = given("mean", f), given("var", f), INPUTS["robustmax_epsilon"]
    largest = jax.jit(RobustMax(3, epsilon).probability_largest)
    for k in range(3):
        p = largest(jnp.asarray(mean), jnp.asarray(variance), jnp.full(len(mean), k))
        theirs = given("mean", stored["predict_y_test"])[:, k]
        fine = np.array([reference.probability_largest(*row, k) for row in zip(mean, variance, strict=True)])
        of_class = lambda p: p * (1 - epsilon) + (1 - p) * epsilon / 2
        np.testing.assert_allclose(of_class(p), theirs, atol=2 * np.max(np.abs(theirs - of_class(fine))) + 1e-10)


def test_gradients_with_respect_to_constrained_values(key):
    stored, x, y = CONV["gaussian"]["elbo_gradients"]["values"], pixels("X"), jnp.asarray(given("Y"))
    model = conv_model(Gaussian(INPUTS["likelihood_variance"], 3))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda model: elbo(model, x, y, len(x), key=key)))(model)
    parameters = lambda model: {
        "lengthscale": model.layers[0].gp.kernel.covariance.response.patch.lengthscale,
        "variance": model.layers[0].gp.kernel.covariance.response.patch.variance,
        "likelihood_variance": model.likelihood.variance,
        "weights": model.layers[0].gp.kernel.covariance.weights,
        "Z": model.layers[0].gp.inducing[0].Z,
        "q_mu": model.layers[0].gp.q.q_mu,
        "q_sqrt": model.layers[0].gp.q.q_sqrt,
    }
    ours = {name: np.asarray(parameter.raw) for name, parameter in parameters(gradient).items()}
    for name in ("lengthscale", "variance", "likelihood_variance"):
        # value = 1e-6 + exp(raw), so d value / d raw = value − 1e-6.
        ours[name] = ours[name] / (given(name) - 1e-6)
    for name, slope in stored.items():
        close(ours[name].T if name == "q_mu" else ours[name], slope, 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_stationary_kernels(kind):
    X, X2 = (jnp.asarray(given(name, STATIONARY)) for name in ("X", "X2"))
    kernel = KINDS[kind](STATIONARY["variance"], jnp.asarray(STATIONARY["lengthscales"]))
    K, K_cross, K_diag = jax.jit(lambda: (kernel(X, X), kernel(X, X2), kernel.diag(X)))()
    close(K, STATIONARY[kind]["K"])
    close(K_cross, STATIONARY[kind]["K_cross"], 1e-12)
    close(K_diag, STATIONARY[kind]["K_diag"], 1e-12)


@pytest.mark.parametrize("whitening", ["whitened", "unwhitened"])
@pytest.mark.parametrize("name", ["linear_coregionalization", "separate_independent"])
def test_multioutput(name, whitening, key):
    case, data = MULTI[name], MULTI["inputs"]
    stored, Z = case[whitening], given("Z", case)
    kernels = (KINDS[k["kind"]](k["variance"], jnp.asarray(k["lengthscales"])) for k in case["kernels"])
    prior = Separate(tuple(Pointwise(k) for k in kernels))
    kernel = LinearCoregionalization(prior, Real(given("W", case))) if "W" in case else prior
    inducing = tuple(InducingPoints(Real(points)) for points in (Z if Z.ndim == 3 else [Z]))
    q = (given("q_mu", case).T, given("q_sqrt", case))
    q = q if whitening == "whitened" else whitened(given("Kuu", stored), *q)
    gp = SparseGP(kernel, inducing, problems.full_rank(*q))
    x, x_test, y = (jnp.asarray(given(name, data)) for name in ("X", "X_test", "Y"))
    # One relative jitter for latents of different variance cannot be GPflow's; the median variance is near 1.
    model = DeepGP((Layer(gp, Zero(3), (3,)),), Gaussian(data["likelihood_variance"], 3), jitter=STORED["jitter"])
    Kuu, Kuf = jax.jit(lambda: (kernel.Kuu(inducing), kernel.Kuf(inducing, x_test)))()
    close(Kuu, stored["Kuu"], 1e-12)
    close(Kuf[..., 0], stored["Kuf"], 1e-12)
    f, joint, kl = problems.posterior(gp, x_test, model.jitter)
    close(f.mean, stored["mean"], 1e-6)
    close(f.variance, stored["var"], 1e-6)
    close(joint.covariance, stored["full_output_cov"], 1e-6)
    close(joint.covariance, np.einsum("npnq->npq", stored["full_cov_full_output_cov"]), 1e-6)
    close(kl, stored["prior_kl"], 1e-6)
    close(evaluate(model, x, y, len(x), key)[2], stored["elbo_gaussian"], 1e-6)
