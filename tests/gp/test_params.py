import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

from tickgp.gp.builders import deep_se, deep_tick, tick
from tickgp.gp.inducing import AbstractInducing
from tickgp.gp.kernels import AbstractStationary, Matern32, SquaredExponential, Sum
from tickgp.gp.likelihoods import AbstractClassification, Softmax
from tickgp.gp.params import (
    AbstractParameter,
    Normal,
    Positive,
    Real,
    Triangular,
    freeze,
    log_prior,
    positive,
    trainable,
    unfreeze,
)
from tickgp.gp.variational import AbstractVariational

IMAGES = np.random.default_rng(0).uniform(size=(12, 6, 6, 1))
SMALL = {"num_inducing": 4, "patch_size": 3}


class Toy(eqx.Module):
    """Parameters of each kind, at several depths, beside constants."""

    kernel: Sum
    tables: dict[str, Real | Array]
    triangle: Triangular
    constant: Array
    name: str = eqx.field(static=True)


def toy():
    kernel = SquaredExponential(2.0, np.array([0.3, 4.0])) + Matern32(Positive(1.0, trainable=False), 0.7)
    tables = {"moving": Real(jnp.arange(3.0)), "fixed": jnp.arange(4.0)}
    return Toy(kernel, tables, Triangular(jnp.ones((2, 2))), jnp.asarray(1e-5), "toy")


def marked(model):
    """The paths of the arrays that training may change, without the final `.raw` that each must have."""
    leaves = jax.tree_util.tree_leaves_with_path(trainable(model))
    paths = [jax.tree_util.keystr(path) for path, on in leaves if on]
    assert all(path.endswith(".raw") for path in paths)
    return {path.removesuffix(".raw") for path in paths}


TOY_PARAMETERS = {
    ".kernel.terms[0].variance",
    ".kernel.terms[0].lengthscale",
    ".kernel.terms[1].lengthscale",
    ".tables['moving']",
    ".triangle",
}


@pytest.mark.parametrize("x64", [False, True])
def test_positive_keeps_its_value_over_many_magnitudes(x64):
    with jax.enable_x64(x64):
        values = np.logspace(-4, 6, 41)
        np.testing.assert_allclose(Positive(values).value, values, rtol=1e-9 if x64 else 1e-5)
        # Near the floor of 1e-6 only the part above it is represented.
        np.testing.assert_allclose(Positive(2e-6).value, 2e-6, rtol=1e-9 if x64 else 1e-5)
        assert Positive(Positive(1e18).value).value == Positive(1e18).value


def test_positive_is_positive_and_finite_wherever_the_optimiser_goes():
    raws = jnp.asarray([-1e30, -1e4, -200.0, -1.0, 0.0, 1.0, 40.0, 43.0, 200.0, 1e30])
    moved = eqx.tree_at(lambda p: p.raw, Positive(1.0), raws)
    slope = jax.vmap(jax.grad(lambda raw: eqx.tree_at(lambda p: p.raw, moved, raw).value))(raws)
    assert bool(jnp.all(moved.value > 0) & jnp.all(jnp.isfinite(moved.value)))
    most = np.log(1e18)  # 41.4
    np.testing.assert_allclose(slope, np.where(raws < most, np.exp(np.minimum(raws, most)), 0), rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(moved.value[-3:], 1e18, rtol=1e-5)
    assert bool(jnp.isfinite(moved.value**2).all() & (moved.value**-2.0 > 0).all())


def test_one_step_changes_small_and_large_values_by_the_same_share():
    """A step in the value itself could not take a lengthscale from 3 pixels to 30."""
    values = np.logspace(-3, 6, 10)
    start = Positive(values)
    moved = eqx.tree_at(lambda p: p.raw, start, start.raw + 0.03)
    np.testing.assert_allclose(moved.value / start.value, np.exp(0.03), rtol=1e-4)


@pytest.mark.parametrize("bad", [0.0, -1.0, 1e-6, np.nan, np.inf, 1e19, np.array([1.0, 0.0]), np.array([[2.0, -3.0]])])
def test_positive_refuses_what_is_out_of_its_bounds(bad):
    words = r"a positive parameter was given .*; every entry must be above 1e-06 and at most 1e\+18"
    with pytest.raises(ValueError, match=words):
        Positive(bad)


def test_a_parameter_given_as_a_scale_is_kept():
    fixed = Positive(2.0, trainable=False)
    assert positive(fixed) is fixed
    assert SquaredExponential(fixed).variance is fixed
    np.testing.assert_allclose(positive(2.0).value, 2.0, rtol=1e-6)


def test_the_prior_is_the_density_beside_that_at_its_mean():
    """Of all parameters that have one, wherever they are and whether they are trained or not."""
    values, others = np.array([[0.3, -2.0], [1.0, 5.0]]), np.array([-1.0, 4.0])
    model = {"a": [Real(values, prior=Normal(1.0, 0.5)), Real(others)], "b": Real(others, False, Normal()), "c": others}
    expected = stats.norm(1, 0.5).logpdf(values) - stats.norm(1, 0.5).logpdf(1)
    expected = expected.sum() + (stats.norm.logpdf(others) - stats.norm.logpdf(0)).sum()
    np.testing.assert_allclose(log_prior(model), expected, rtol=1e-5)
    assert log_prior(toy()) == 0
    moved = freeze(model, lambda m: m["a"])
    np.testing.assert_allclose(log_prior(moved), expected, rtol=1e-5)


@pytest.mark.parametrize("deviation", [0.0, -1.0, np.nan])
def test_a_prior_without_width_is_refused(deviation):
    with pytest.raises(ValueError, match=r"a deviation of .* was given; it must be above 0"):
        Normal(0.0, deviation)


def test_triangular_ignores_what_is_above_the_diagonal():
    stack = np.arange(1.0, 19.0).reshape(2, 3, 3)
    parameter = Triangular(stack)
    np.testing.assert_array_equal(parameter.value, np.stack([np.tril(m) for m in stack]))
    moved = eqx.tree_at(lambda p: p.raw, parameter, jnp.asarray(stack))
    np.testing.assert_array_equal(moved.value, parameter.value)
    gradient = eqx.filter_grad(lambda p: jnp.sum(p.value**2))(moved)
    np.testing.assert_array_equal(gradient.raw, 2 * parameter.value)


def test_exactly_the_parameters_are_trainable():
    model = toy()
    assert marked(model) == TOY_PARAMETERS
    assert jax.tree.structure(trainable(model)) == jax.tree.structure(model)


@pytest.mark.parametrize(
    ("where", "frozen"),
    [
        (lambda m: m.kernel.terms[0].variance, {".kernel.terms[0].variance"}),
        (lambda m: (m.triangle, m.tables["moving"]), {".triangle", ".tables['moving']"}),
        (lambda m: m.kernel.terms[0], {".kernel.terms[0].variance", ".kernel.terms[0].lengthscale"}),
        (lambda m: m.kernel, {path for path in TOY_PARAMETERS if path.startswith(".kernel")}),
        (lambda m: (m.kernel, m.tables), TOY_PARAMETERS - {".triangle"}),
        (lambda m: m, TOY_PARAMETERS),
    ],
    ids=["parameter", "two parameters", "term", "kernel", "kernel and dictionary", "everything"],
)
def test_freeze_takes_out_what_is_below_and_nothing_else(where, frozen):
    model = toy()
    cold = freeze(model, where)
    assert marked(cold) == TOY_PARAMETERS - frozen
    for before, after in zip(jax.tree.leaves(model), jax.tree.leaves(cold), strict=True):
        np.testing.assert_array_equal(before, after)
    assert frozen <= marked(unfreeze(cold, where))
    assert marked(unfreeze(cold, lambda m: m)) == TOY_PARAMETERS | {".kernel.terms[1].variance"}


@pytest.mark.parametrize("x64", [False, True])
def test_freezing_keeps_every_bit(x64):
    with jax.enable_x64(x64):
        raws = jnp.asarray(np.random.default_rng(0).normal(0, 5, size=300))
        parameter = eqx.tree_at(lambda p: p.raw, Positive(1.0), raws)
        back = unfreeze(freeze((parameter,), lambda t: t[0]), lambda t: t[0])[0]
        assert back.raw.dtype == raws.dtype
        np.testing.assert_array_equal(back.raw, raws)


class Between(AbstractParameter):
    """low + (high − low) · sigmoid(raw), with more fields than the library's own, one of them an array."""

    raw: Array
    trainable: bool = eqx.field(static=True)
    low: Array
    high: float = eqx.field(static=True)

    def __init__(self, low, high):
        self.raw, self.trainable, self.low, self.high = jnp.zeros(3), True, jnp.asarray(low), high

    @property
    def value(self):
        return self.low + (self.high - self.low) * jax.nn.sigmoid(self.raw)


def test_freezing_keeps_what_else_a_parameter_holds():
    model = (Between(2.0, 8.0), Real(1.0))
    cold = freeze(model, lambda m: m[0])
    assert [p.trainable for p in (*model, *cold)] == [True, True, False, True]
    np.testing.assert_array_equal(cold[0].value, np.full(3, 5.0))
    assert eqx.tree_equal(unfreeze(cold, lambda m: m), model)


ABSTRACT = {
    AbstractParameter: {"raw", "trainable", "value"},
    AbstractStationary: {"variance", "lengthscale", "correlation"},
    AbstractInducing: {"Z", "value"},
    AbstractVariational: {"q_mu", "spread", "variance", "draw", "kl"},
    AbstractClassification: {"num_classes", "num_outputs", "expected_log_prob", "probabilities"},
}


@pytest.mark.parametrize("base", ABSTRACT)
def test_a_class_without_a_field_that_its_base_asks_for_is_refused(base):
    """Which equinox sees only where annotations are no strings."""
    missing = base.__abstractmethods__ | base.__abstractvars__
    assert missing == ABSTRACT[base]
    methods = {name: lambda self: None for name in base.__abstractmethods__}
    with pytest.raises(TypeError, match="abstract"):
        type("WithoutFields", (base,), methods)()


def test_a_parameter_that_reached_its_floor_can_be_frozen():
    at_floor = eqx.tree_at(lambda p: p.raw, Positive(1.0), jnp.asarray(-50.0))
    assert marked(freeze((at_floor,), lambda t: t[0])) == set()


def test_a_frozen_parameter_gets_no_gradient_and_does_not_move():
    model = freeze(toy(), lambda m: m.kernel.terms[0].lengthscale)
    moving, fixed = eqx.partition(model, trainable(model))
    a, b = jnp.asarray([[0.0, 1.0]]), jnp.asarray([[0.5, -1.0]])

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(moving):
        m = eqx.combine(moving, fixed)
        total = jnp.sum(m.tables["moving"].value ** 3 + m.tables["fixed"][:3]) + jnp.sum(m.triangle.value**2)
        return jnp.sum(m.kernel(a, b)) + total * (1 + m.constant)

    slopes = gradient(moving)
    moved = eqx.combine(eqx.apply_updates(moving, slopes), fixed)
    path = lambda tree: {jax.tree_util.keystr(p): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    changed = {p for p, leaf in path(moved).items() if not np.array_equal(leaf, path(model)[p])}
    expected = {p + ".raw" for p in TOY_PARAMETERS - {".kernel.terms[0].lengthscale"}}
    assert path(slopes).keys() == changed == expected


def last_names(model):
    """The attribute's name of every trainable parameter, layer by layer."""
    return [sorted(path.split(".")[-1] for path in marked(layer)) for layer in model.layers]


def test_trainable_parameters_of_a_tick_model(key):
    """Not the jitter, and not the location kernel's variance, which the builder freezes."""
    model = tick(IMAGES, Softmax(3), key=key, **SMALL)
    expected = ["Z", "lengthscale", "lengthscale", "places", "q_mu", "q_sqrt", "variance", "weights"]
    assert last_names(model) == [expected]
    assert trainable(model).jitter is False
    assert len(marked(model)) == len(expected)


def test_a_layer_can_be_frozen(key):
    model = deep_tick(IMAGES, Softmax(3), channels=2, key=key, **SMALL)
    hidden, last = last_names(model)
    assert hidden == ["Z", "lengthscale", "q_mu", "q_sqrt", "variance"]
    assert last_names(freeze(model, lambda m: m.layers[0])) == [[], last]
    assert last_names(freeze(model, lambda m: m.layers[-1])) == [hidden, []]


def test_principal_components_are_constants(key):
    model = deep_se(IMAGES, Softmax(3), width=2, num_inducing=4, key=key)
    assert last_names(model) == [["Z", "lengthscale", "q_mu", "q_sqrt", "variance"]] * 2
