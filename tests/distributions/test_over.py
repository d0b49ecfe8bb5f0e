"""The default family of each space; samples stay in the space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlcli import distributions

INFINITE = np.inf
MIXED = spaces.Dict(
    {
        "which": spaces.Discrete(3, start=1),
        "where": spaces.Tuple(
            [spaces.Box(-1, 1, (2,)), spaces.MultiBinary([2, 2])],
        ),
        "how": spaces.MultiDiscrete([2, 4], start=[5, -1]),
    }
)
CASES = [
    (spaces.Discrete(3, start=1), "categorical", 3),
    (spaces.MultiDiscrete(np.array([[2, 3], [1, 4]])), "multi_discrete", 10),
    (spaces.MultiBinary(5), "multi_binary", 5),
    (spaces.Box(-1, 1, (2, 3)), "normal", 12),
    (spaces.Box(-3, 1, (2,), np.int8), "multi_discrete", 10),
    (MIXED, "composite", 3 + 2 * 2 + 4 + 6),
]


@pytest.mark.parametrize(("space", "name", "size"), CASES)
def test_every_action_space_has_its_default_family(space, name, size):
    ours = distributions.distribution_for(space)
    assert (ours.name, ours.size) == (name, size)


def test_the_family_of_a_box_of_floats_can_be_chosen_also_in_members():
    space, box = spaces.Box(-1, 1, (2,)), "squashed_normal"
    alone = distributions.distribution_for(space, box=box)
    assert (alone.name, alone.size) == (box, 4)
    both = spaces.Tuple([space, spaces.Discrete(2)])
    ours = distributions.distribution_for(both, box=box)
    assert ours.size == alone.size + 2 and ours.differentiable is None


def test_an_unknown_family_of_a_box_is_refused():
    with pytest.raises(ValueError, match=r"expected `box` in .*, got 'beta'"):
        distributions.distribution_for(spaces.Box(-1, 1, ()), box="beta")


BOXES = spaces.Tuple(
    [
        spaces.Box(np.array([-1.0, 0.0], "f4"), np.array([2.0, 10.0], "f4")),
        spaces.Box(-1, 1, (1,), np.float16),
    ]
)
CHOICES = spaces.Tuple(
    [
        spaces.Discrete(3, start=-1, dtype=np.int8),
        spaces.MultiDiscrete(
            np.array([[2, 3], [1, 4]]), start=np.array([[0, 9], [-5, 1]])
        ),
        spaces.Dict({"one": spaces.Box(-2, 3, (), np.int8)}),
        spaces.MultiBinary((2, 2)),
    ]
)


def test_samples_and_modes_are_elements_of_the_space():
    members = [
        distributions.distribution_for(CHOICES),
        distributions.distribution_for(BOXES, box="squashed_normal"),
    ]
    ours, whole = distributions.composite(members), (CHOICES, BOXES)
    parameters = 2 * np.random.default_rng(0).normal(size=ours.size).astype("f4")

    @jax.jit
    def drawn(key):
        noise = ours.draw(key, 64)
        many = jnp.broadcast_to(parameters, (64, ours.size))
        return ours.sample(many, noise), ours.mode(many)

    for actual in drawn(jax.random.key(0, impl="rbg")):
        actual = jax.tree.map(np.asarray, actual)
        for i in range(64):
            element = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), actual)
            for member, space in zip(element, whole, strict=True):
                assert space.contains(member), (space, member)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 5_000, (2,), np.int32),
        spaces.Box(-(2**63), 2**63 - 1, (), np.int64),
        spaces.Text(3),
        spaces.Dict(),
        spaces.Tuple([]),
        spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))]),
    ],
)
def test_other_spaces_are_refused(space):
    with pytest.raises(TypeError, match=r"expected Discrete, .* of these, got"):
        distributions.distribution_for(space)


def test_parameters_may_have_any_leading_axes():
    ours = distributions.distribution_for(MIXED)

    def said(parameters, key):
        noise = jax.vmap(lambda each: ours.draw(each, 5))(jax.random.split(key, 3))
        actions = ours.sample(parameters, noise)
        numbers = ours.log_prob(parameters, actions), ours.entropy(parameters)
        numbers += (ours.kl(parameters, parameters),)
        return actions, ours.mean(parameters), numbers

    parameters = np.zeros((3, 5, ours.size), "f4")
    actions, mean, numbers = jax.eval_shape(
        said, parameters, jax.random.key(0, impl="rbg")
    )
    assert [each.shape for each in numbers] == [(3, 5)] * 3
    for each in (actions, mean):
        shapes = jax.tree.map(lambda leaf: leaf.shape[2:], each)
        assert shapes == {"which": (), "where": ((2,), (2, 2)), "how": (2,)}
        assert all(leaf.shape[:2] == (3, 5) for leaf in jax.tree.leaves(each))
