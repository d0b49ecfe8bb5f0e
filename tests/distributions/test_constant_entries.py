"""A Box with constant entries, compared with a Box of the others alone."""

import jax
import numpy as np
import pytest
from gymnasium import spaces
from tiers import quick_first

from rlcli import distributions
from rlcli.policies.sampled import uniform_log_density
from rlcli.updaters.off_policy.soft_pg import build_temperature

LOW = np.array([[-1.0, 5.0], [0.0, -3.0]], "f4")
HIGH = np.array([[1.0, 5.0], [0.0, 2.0]], "f4")
BOX = spaces.Box(LOW, HIGH)
OTHERS = spaces.Box(np.array([-1.0, -3.0], "f4"), np.array([1.0, 2.0], "f4"))
PLACES = np.array([0, 3])


@pytest.mark.slow
@pytest.mark.parametrize("box", ["normal", "squashed_normal"])
def test_constant_entries_contribute_nothing(box):
    ours, truth = (
        distributions.distribution_for(space, box=box) for space in (BOX, OTHERS)
    )
    assert (ours.name, ours.size) == (truth.name, truth.size)
    keys = jax.random.split(jax.random.key(0), 3)
    parameters, other = (jax.random.normal(key, (6, ours.size)) for key in keys[:2])
    noise = ours.draw(keys[2], 6)

    def check(found, expected):
        assert found.shape == (6, 2, 2)
        flat = np.asarray(found).reshape(6, 4)
        np.testing.assert_array_equal(flat[:, PLACES], expected)
        np.testing.assert_array_equal(flat[:, 1:3], np.tile([5.0, 0.0], (6, 1)))

    x, expected = ours.sample(parameters, noise), truth.sample(parameters, noise)
    check(x, expected)
    check(ours.mode(parameters), truth.mode(parameters))
    check(ours.mean(parameters), truth.mean(parameters))
    for name in ("entropy", "kl"):
        arguments = (parameters,) if name == "entropy" else (parameters, other)
        values = [getattr(each, name)(*arguments) for each in (ours, truth)]
        np.testing.assert_array_equal(*values)
    np.testing.assert_array_equal(
        ours.log_prob(parameters, x), truth.log_prob(parameters, expected)
    )
    found, density = ours.differentiable(parameters, noise)
    expected, true_density = truth.differentiable(parameters, noise)
    check(found, expected)
    np.testing.assert_array_equal(density, true_density)


@pytest.mark.parametrize("box", quick_first(["normal", "squashed_normal"]))
def test_the_distribution_of_constants_has_no_parameters(box):
    ours = distributions.distribution_for(spaces.Box(LOW, LOW), box=box)
    parameters, noise = np.zeros((3, 0), "f4"), ours.draw(jax.random.key(0), 3)
    x, density = ours.differentiable(parameters, noise)
    assert np.all(np.asarray(x) == LOW)
    assert np.all(np.asarray(ours.mode(parameters)) == LOW)
    for number in (density, ours.entropy(parameters), ours.kl(parameters, parameters)):
        np.testing.assert_array_equal(number, np.zeros(3))


def test_constant_entries_do_not_change_entropies_and_densities():
    targets = [
        build_temperature(space, "learned", 1.0, None).target_entropy(None)
        for space in (BOX, OTHERS)
    ]
    assert targets[0] == pytest.approx(targets[1])
    assert uniform_log_density(BOX) == pytest.approx(uniform_log_density(OTHERS))
