"""The objective that training maximises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from tickgp.gp.compiling import platform
from tickgp.gp.models import DeepGP


def elbo(
    model: DeepGP,
    images: Shaped[Array, "B ..."],
    labels: Array,
    num_data: int,
    *,
    key: PRNGKeyArray,
    num_samples: int = 1,
    likelihood_samples: int = 1,
) -> Float[Array, ""]:
    """An unbiased estimate, from a minibatch, of the evidence lower bound of the whole dataset.

    (num_data / B) Σ_n E_q[log p(y_n | f(x_n))] − Σ_l KL[q(u_l) || p(u_l)]. With `sampling="marginal"` the patches of a
    hidden layer are not drawn from one joint q, so this is no bound and may exceed the evidence.
    Paper: eq. elbo
    """
    fit = expected_log_prob(
        model, images, labels, key=key, num_samples=num_samples, likelihood_samples=likelihood_samples
    )
    return num_data / len(images) * jnp.sum(fit) - model.kl()


def expected_log_prob(
    model: DeepGP,
    images: Shaped[Array, "B ..."],
    labels: Array,
    *,
    key: PRNGKeyArray,
    num_samples: int = 1,
    likelihood_samples: int = 1,
) -> Float[Array, " B"]:
    """E_q[log p(y_n | f(x_n))] of each image: how well the model explains its label.

    The expectation over hidden layers is estimated from `num_samples` draws; that over the last layer, where the
    likelihood has no closed form, from `likelihood_samples` for each of those.
    """

    def one_sample(key: PRNGKeyArray) -> Float[Array, " B"]:
        key_hidden, key_likelihood = jax.random.split(key)
        f = model.propagate(images, key=key_hidden)
        return model.likelihood.expected_log_prob(f, labels, key=key_likelihood, num_samples=likelihood_samples)

    keys = jax.random.split(key, num_samples)
    # Joint draws factorise matrices, on a CPU one at a time: see `linalg._each`.
    in_turn = num_samples > 1 and model.sampling == "full" and platform() == "cpu"
    return jnp.mean(jax.lax.map(one_sample, keys) if in_turn else jax.vmap(one_sample)(keys), axis=0)
