"""Optimizers: every optax optimizer by name, and one per parameter group."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import quick_first

from rlcli import recipe, registry, schedules
from rlcli.recipe import annotations
from rlcli.types import Clock
from rlcli.updaters.optimizers import partition_by_group

NAMES = registry.names("optimizer")
# A temperature, biases, kernels of dense layers and convolutions, the critics of an
# ensemble, and the layer of an empty observation.
SHAPES = [(), (1,), (3,), (4, 3), (1, 3), (3, 3, 2, 4), (2, 4, 3), (0,), (0, 3)]
PARAMS = {"q": {"w": np.full((3, 2), 0.5, "f4"), "b": np.ones(2, "f4")}}


def factory(name):
    return registry.find("optimizer", name).factory


def step_params(optimizer, params, gradient):
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    return optax.apply_updates(params, updates)


def leaves(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.filterwarnings("ignore:`optimistic_adam` is deprecated")  # optax's word
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "clip", quick_first([{}, {"clip_norm": 1.0}]), ids=["", "clipped"]
)
def test_every_optimizer_goes_downhill_with_parameters_of_any_shape(name, clip):
    params = {
        group: {str(shape): np.full(shape, 0.5, "f4") for shape in SHAPES}
        for group in ("q", "temperature")
    }

    @jax.jit
    def descend(learning_rate):  # traced, as with a schedule
        optimizer = factory(name)(learning_rate=learning_rate, **clip)
        own = {"default": optimizer, "temperature": factory("sgd")()}
        optimizer = partition_by_group(own)

        def step(_, learner):  # with the gradient of ½‖params‖²
            state, params = learner
            updates, state = optimizer.update(params, state, params)
            return state, optax.apply_updates(params, updates)

        # The first step of some is zero.
        return jax.lax.fori_loop(0, 3, step, (optimizer.init(params), params))[1]

    after = descend(np.float32(0.01))
    for shape in SHAPES:
        before, leaf = params["q"][str(shape)], after["q"][str(shape)]
        assert leaf.shape == shape and leaf.dtype == np.float32
        assert np.all(np.isfinite(leaf)) and np.all(np.abs(leaf) < before)
    # A scalar is a vector of one number.
    np.testing.assert_allclose(after["q"]["()"], after["q"]["(1,)"][0], rtol=1e-6)
    np.testing.assert_allclose(after["temperature"]["()"], 0.5 * 0.999**3, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_default_satisfies_its_annotation(name):
    for parameter in registry.options(factory(name)).values():
        allowed = annotations.convert(parameter.annotation, parameter.default)
        assert allowed == parameter.default


def test_common_optimizers_are_registered_and_their_parts_are_not():
    assert {"adam", "adamw", "rmsprop", "sgd", "lamb", "radam"} <= set(NAMES)
    assert not [name for name in NAMES if name.startswith("scale_by_")]
    assert "lbfgs" not in NAMES  # asks for losses along a line
    assert "noisy_sgd" not in NAMES  # asks for a key at every step


def test_an_optimizer_equals_that_of_optax():
    ours = factory("adam")(learning_rate=0.1, b1=0.5)
    theirs = optax.adam(0.1, b1=0.5)
    for old, new in zip(
        jax.tree.leaves(step_params(theirs, PARAMS, PARAMS)),
        jax.tree.leaves(step_params(ours, PARAMS, PARAMS)),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)


def test_the_learning_rate_has_a_default_and_the_signature_defines_the_schema():
    for name in ("adam", "sgd", "adadelta"):
        options = registry.options(factory(name))
        assert options["learning_rate"].default == pytest.approx(1e-3, rel=10)
        assert options["clip_norm"].default is None
        assert all(
            each.kind is inspect.Parameter.KEYWORD_ONLY for each in options.values()
        )
    momentum = registry.options(factory("sgd"))["momentum"]
    assert momentum.default is None
    whole = registry.options(factory("adafactor"))["min_dim_size_to_factor"]
    assert not annotations.is_schedulable(whole.annotation)


def test_clip_norm_clips_the_norm_of_the_whole_gradient():
    gradient = {"q": {"w": np.full((3, 2), 3, "f4"), "b": np.full(2, -1, "f4")}}
    norm = np.linalg.norm(leaves(gradient))
    sgd = functools.partial(factory("sgd"), learning_rate=1.0)

    def step(**options):
        step = jax.jit(functools.partial(step_params, sgd(**options)))
        after = step(PARAMS, gradient)
        return leaves(PARAMS) - leaves(after)

    np.testing.assert_allclose(step(), leaves(gradient), rtol=1e-6)
    np.testing.assert_allclose(
        step(clip_norm=0.5), leaves(gradient) * 0.5 / norm, rtol=1e-5
    )
    np.testing.assert_allclose(step(clip_norm=100.0), leaves(gradient), rtol=1e-6)


def test_each_group_uses_its_own_optimizer_and_the_others_the_default():
    params = {name: {"w": np.ones(3, "f4")} for name in ("policy", "critic", "value")}
    sgd = factory("sgd")
    optimizer = partition_by_group(
        {
            "default": sgd(learning_rate=0.1),
            "policy": sgd(learning_rate=0.0),
            "critic": sgd(learning_rate=1.0, clip_norm=1.0),
        }
    )
    gradient = jax.tree.map(lambda leaf: 2 * leaf, params)
    after = jax.jit(functools.partial(step_params, optimizer))(params, gradient)
    np.testing.assert_allclose(after["policy"]["w"], 1.0)
    np.testing.assert_allclose(after["value"]["w"], 0.8, rtol=1e-6)
    # Clipped by the norm of its own gradient only: 2 / (2 √3) each.
    np.testing.assert_allclose(after["critic"]["w"], 1 - 1 / np.sqrt(3), rtol=1e-5)


def test_a_single_default_applies_to_all_groups():
    adam = factory("adam")()
    assert partition_by_group({"default": adam}) is adam


def test_a_schedule_in_a_recipe_sets_the_learning_rate_of_each_step():
    read = recipe.load_recipe(
        {
            "environment": "CartPole-v1",
            "updater": "q_learning",
            "optimizer": {
                "name": "sgd",
                "learning_rate": {"from": 1.0, "to": 0.0},
                "momentum": {"from": 0.9, "to": 0.0},
            },
            "train": {"steps": 100},
        }
    )
    options = read.optimizer["default"].options

    @jax.jit
    def after(steps):
        clock = Clock.zero()._replace(steps=steps)
        found = factory("sgd")(
            **schedules.evaluate_options(options, clock, read.train.steps)
        )
        return step_params(found, PARAMS, jax.tree.map(jnp.ones_like, PARAMS))

    for steps, rate in [(0, 1.0), (25, 0.75), (100, 0.0)]:
        moved = leaves(PARAMS) - leaves(after(np.float32(steps)))
        np.testing.assert_allclose(moved, rate, atol=1e-6)


def refused(name, option, value):
    annotation = registry.options(factory(name))[option].annotation
    try:
        annotations.convert(annotation, value)
    except annotations.MismatchError:
        return True
    return False


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("adam", "b1", 1),
        ("adam", "b2", 1),
        ("adan", "b3", 1),
        ("adafactor", "decay_offset", 5),
        ("radam", "threshold", 3),
    ],
)
def test_options_that_make_optax_return_nan_are_refused(name, option, value):
    assert refused(name, option, value)
    optimizer = factory(name)(**{option: value})

    @jax.jit
    def step(state, params):
        updates, state = optimizer.update(params, state, params)
        return state, optax.apply_updates(params, updates)

    state, params = optimizer.init(PARAMS), PARAMS
    for _ in range(10):
        state, params = step(state, params)
    assert not np.all(np.isfinite(leaves(params)))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("adamw", "b1", 1.5),
        ("sgd", "momentum", 1.1),
        ("rmsprop", "decay", 1),
        ("adadelta", "rho", 1),
        ("rprop", "eta_minus", 1.2),
        ("rprop", "eta_plus", 0.5),
    ],
)
def test_decays_and_factors_that_prevent_learning_are_refused(name, option, value):
    assert refused(name, option, value)


@pytest.mark.filterwarnings("ignore:`optimistic_adam` is deprecated")  # optax's word
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if index % 8 else [])
        for index, name in enumerate(NAMES)
    ],
)
def test_parameters_stay_finite_at_the_ends_of_every_range(name):
    for option, parameter in registry.options(factory(name)).items():
        for value in (0, 0.999, 1, 4):
            if refused(name, option, value):
                continue
            found = annotations.convert(parameter.annotation, value)
            after = step_params(factory(name)(**{option: found}), PARAMS, PARAMS)
            assert np.all(np.isfinite(leaves(after))), (option, value)
