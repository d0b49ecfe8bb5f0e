"""Schedules against values worked out by hand."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import schedules
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.types import Clock

LINEAR = {"from": 1.0, "to": 0.2, "over": 400}


def _clock(steps: float, episodes: float = 0.0) -> Clock:
    zero = jnp.int32(0)
    return Clock(
        zero, jnp.float32(steps), jnp.float32(episodes), zero, jnp.bool_(False)
    )


@pytest.mark.parametrize(
    ("written", "steps", "expected"),
    [
        (LINEAR, 0, 1.0),
        (LINEAR, 100, 0.8),
        (LINEAR, 400, 0.2),
        (LINEAR, 9_999, 0.2),
        ({"from": 1, "to": 0, "over": "20%"}, 100, 0.5),
        ({"from": 1, "to": 0}, 250, 0.75),
        ({"name": "linear", "from": 0, "to": 2, "over": "12.5%"}, 125, 2.0),
        ({"name": "cosine", "from": 1, "to": 0, "over": 300}, 0, 1.0),
        ({"name": "cosine", "from": 1, "to": 0, "over": 300}, 100, 0.75),
        ({"name": "cosine", "from": 1, "to": 0, "over": 300}, 150, 0.5),
        ({"name": "cosine", "from": 1, "to": 0, "over": 300}, 301, 0.0),
        ({"name": "exponential", "from": 2, "rate": 0.01}, 100, 2 / math.e),
        ({"name": "inverse", "from": 0.3, "rate": 1e-3}, 1_000, 0.15),
        ({"steps": [[0, 1.0], [10, 0.5], [20, 0.1]]}, 9, 1.0),
        ({"steps": [[0, 1.0], [10, 0.5], [20, 0.1]]}, 10, 0.5),
        ({"name": "steps", "steps": [[0, 1.0], [10, 0.5], [20, 0.1]]}, 99, 0.1),
    ],
)
def test_a_schedule_has_the_value_worked_out_by_hand(written, steps, expected):
    schedule = schedules.parse_schedule(written)
    value = schedules.schedule_value(schedule, _clock(steps), 1_000)
    assert value.dtype == jnp.float32 and value.shape == ()
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["exponential", "inverse"])
@pytest.mark.parametrize("start", [2.0, 1e-37, -1e-37, 0.0])
def test_a_decaying_value_never_reaches_zero(name, start):
    """Else an option that has to be > 0, such as a temperature, would divide by it."""
    written = {"name": name, "from": start, "rate": 1.0}
    schedule, late = schedules.parse_schedule(written), _clock(1e37)
    on_host = schedules.schedule_value(schedule, jax.device_get(late), 1_000)
    for value in (
        jax.jit(schedules.schedule_value, static_argnums=(0, 2))(schedule, late, 1_000),
        on_host,
    ):
        assert value.dtype == np.float32
        assert value == np.sign(start) * np.float32(min(abs(start), 1e-30))


def test_a_schedule_ends_exactly_at_its_last_value():
    schedule = schedules.parse_schedule({"from": 1.0, "to": 0.02, "over": 10_000})
    value = schedules.schedule_value(schedule, _clock(10_000), 50_000)
    assert value == np.float32(0.02)


def test_a_schedule_per_episode_follows_the_episodes_finished():
    written = {"from": 1, "to": 0, "over": 10, "per": "episode"}
    schedule = schedules.parse_schedule(written)
    value = schedules.schedule_value(schedule, _clock(9_999, episodes=4), 100)
    np.testing.assert_allclose(value, 0.6, rtol=1e-6)


def test_a_schedule_can_be_traced_and_batched():
    schedule = schedules.parse_schedule({"name": "inverse", "from": 0.3, "rate": 1e-3})

    @jax.jit
    @jax.vmap
    def values(steps):
        return schedules.schedule_value(schedule, _clock(0)._replace(steps=steps), 10)

    steps = np.asarray([0.0, 500.0, 2_000.0], np.float32)
    np.testing.assert_allclose(values(steps), 0.3 / (1 + steps / 1000), rtol=1e-6)


def test_nested_options_are_copied_with_their_values_now():
    schedule = schedules.parse_schedule(LINEAR)
    options = {"a": schedule, "b": {"c": [schedule, 3]}, "d": "x", "e": (schedule,)}
    now = schedules.evaluate_options(options, _clock(200), 1_000)
    np.testing.assert_allclose(now["a"], 0.6, rtol=1e-6)
    np.testing.assert_allclose(now["b"]["c"][0], 0.6, rtol=1e-6)
    assert now["b"]["c"][1] == 3 and now["d"] == "x" and isinstance(now["e"], tuple)
    assert options["a"] is schedule


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"from": 1, "to": 0.5, "over": "20%"},
            {"name": "linear", "from": 1, "to": 0.5, "over": "20%", "per": "step"},
        ),
        (
            {"from": 1, "to": 0},
            {"name": "linear", "from": 1, "to": 0, "over": "100%", "per": "step"},
        ),
        (
            {"steps": [[0, 1.0], [1e6, 0.1]]},
            {"name": "steps", "steps": [[0, 1.0], [1_000_000, 0.1]], "per": "step"},
        ),
        (
            {"name": "inverse", "from": 1, "rate": 0.5, "per": "episode"},
            {"name": "inverse", "from": 1, "rate": 0.5, "per": "episode"},
        ),
    ],
)
def test_a_schedule_is_written_with_its_defaults_and_read_back_the_same(
    given, expected
):
    schedule = schedules.parse_schedule(given)
    assert schedules.schedule_to_plain(schedule) == expected
    assert schedules.parse_schedule(expected) == schedule


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"from": 1}, "has no `to`"),
        ({"from": 1, "to": 0, "ovr": 3}, "has no option `ovr`"),
        ({"name": "expo", "from": 1, "rate": 1}, "there is no schedule `expo`"),
        ({"name": ["x"]}, "there is no schedule"),
        ({"name": "inverse", "from": 1, "rate": -1}, "must be ≥ 0"),
        ({"from": "a", "to": 0}, "`from` of a schedule must be a number"),
        ({"from": True, "to": 0}, "`from` of a schedule must be a number"),
        ({"from": math.nan, "to": 0}, "`from` of a schedule must be a number"),
        ({"from": 1, "to": 0, "over": 0}, "`over` of a schedule must be > 0"),
        ({"from": 1, "to": 0, "over": "120%"}, "`over` of a schedule must be > 0"),
        ({"from": 1, "to": 0, "over": "x%"}, "`over` of a schedule must be > 0"),
        ({"from": 1, "to": 0, "per": "hour"}, "`step` or `episode`"),
        ({"from": 1, "to": 0, "per": "episode"}, "needs `over` in episodes"),
        ({"steps": []}, "list of pairs"),
        ({"steps": [[0, 1, 2]]}, "pairs [step, value]"),
        ({"steps": [[0, "x"]]}, "pairs of numbers"),
        ({"steps": [[5, 1.0]]}, "must begin at step 0"),
        ({"steps": [[0, 1.0], [0, 2.0]]}, "must increase"),
    ],
)
def test_an_invalid_schedule_is_refused_with_its_place(given, message):
    policy = {"name": "epsilon_greedy", "epsilon": given}
    with pytest.raises(RlcliError) as error:
        load_recipe({"environment": "CartPole-v1", "updater": "dqn", "policy": policy})
    assert error.value.message.startswith("`epsilon` of policy `epsilon_greedy`: ")
    assert message in error.value.message


def test_limits_are_the_extreme_values_of_a_schedule():
    linear = schedules.parse_schedule(LINEAR)
    assert linear.limits() == (1.0, 0.2)
    decaying = schedules.parse_schedule({"name": "exponential", "from": 1, "rate": 1})
    assert decaying.limits()[0] == 1.0 and 0 < decaying.limits()[1] < 1e-300
    steps = schedules.parse_schedule({"steps": [[0, 1.0], [5, -2.0]]})
    assert steps.limits() == (1.0, -2.0)
