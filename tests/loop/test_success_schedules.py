"""Schedules that follow success: computed in the program, from its own episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli import recipe, schedules
from rlcli.assembly import build
from rlcli.assembly.setup import build_together
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.loop.episode_statistics import (
    begin_statistics,
    count_successes,
    update_statistics,
)
from rlcli.runs import checkpoint
from rlcli.runs.run_folder import Run
from rlcli.schedules import Success
from rlcli.types import START, Clock, TimeStep

WHEN = {"metric": "return", "above": 3.0, "step": 0.1}
RISE = {"from": 0.2, "to": 0.45, "when": WHEN}


def value_after(count: int, schedule) -> float:
    key = schedule.when.key
    clock = Clock.zero()._replace(successes={key: jnp.int32(count)})
    return float(schedules.schedule_value(schedule, clock, 1))


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (RISE, [0.2, 0.3, 0.4, 0.45, 0.45]),
        ({**RISE, "from": 0.45, "to": 0.2}, [0.45, 0.35, 0.25, 0.2, 0.2]),
        ({**RISE, "from": 0.3, "to": 0.3}, [0.3, 0.3]),
    ],
)
def test_the_value_moves_by_a_step_at_each_success(given, values):
    schedule = schedules.parse_schedule(given)
    found = [value_after(count, schedule) for count in range(len(values))]
    np.testing.assert_allclose(found, values, rtol=1e-6)
    assert found[-1] == np.float32(values[-1])
    plain = schedules.schedule_to_plain(schedule)
    assert schedules.parse_schedule(plain) == schedule
    assert schedule.limits() == (given["from"], given["to"])


@pytest.mark.parametrize("clock", [START.clock, rlcli.clock(0), rlcli.clock(10_000)])
def test_where_no_successes_are_counted_the_value_is_the_last(clock):
    schedule = schedules.parse_schedule(RISE)
    assert schedules.schedule_value(schedule, clock, 1) == np.float32(0.45)


def swingup(init_range, **train) -> dict:
    """A pole whose first episodes have angular velocities in ± `init_range`."""
    return {
        "environment": {
            "name": "bsuite/CartpoleSwingup",
            "num_envs": 64,
            "init_range": init_range,
        },
        "network": {"name": "mlp", "layers": [8]},
        "updater": "ppo",
        "train": {"steps": 2_048, "unroll": 16, **train},
    }


def first_speeds(setup) -> np.ndarray:
    """The largest angular velocity with which the episodes of each seed begin."""
    obs = np.asarray(make_loop(setup).begin().pending.obs)
    return np.abs(obs[..., 0, 4]).max(-1)


def test_the_first_episodes_begin_with_the_first_value():
    schedule = {"from": 0.5, "to": 0.0, "when": WHEN}
    (speed,) = first_speeds(build(recipe.load_recipe(swingup(schedule))))
    assert 0.4 < speed <= 0.5


@pytest.mark.slow
def test_the_first_episodes_of_each_run_begin_with_its_own_number():
    train = {"adjustable": ["environment.init_range"]}
    recipes = [recipe.load_recipe(swingup(value, **train)) for value in (0.1, 0.5)]
    common, _ = build_together(recipes, [0])
    low, high = first_speeds(common)
    assert 0.05 < low <= 0.1
    assert 0.4 < high <= 0.5


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (400, "must be a mapping"),
        ({"metric": "return", "above": 1}, "has no `step`"),
        ({**WHEN, "belwo": 1}, "has no option `belwo`"),
        ({**WHEN, "step": 0}, "must be > 0"),
        ({**WHEN, "above": "x"}, "`above` in `when` must be a number"),
        ({**WHEN, "metric": 3}, "must be a name"),
    ],
)
def test_an_invalid_condition_is_refused(when, message):
    with pytest.raises(RlcliError, match=message.replace("`", ".")):
        schedules.parse_schedule({"from": 0, "to": 1, "when": when})


def test_a_success_is_a_mean_of_ten_new_episodes_above_the_threshold():
    """Compared with a plain loop over the episodes, in the order in which they end."""
    rng, num_envs = np.random.default_rng(0), 3
    condition = Success("return", 3.0, 0.1)
    ours = begin_statistics(num_envs, [], [condition.key])
    update = jax.jit(
        lambda s, t: update_statistics(s, t, {}, {condition.key: condition})
    )
    running, episodes, average, count = np.zeros(num_envs), 0, 0.0, 0
    is_new = np.ones(num_envs, bool)  # episodes that began after the last success
    counts = []
    for _ in range(300):
        reward = rng.normal(1.0, 1.0, num_envs).astype(np.float32)
        last = rng.random(num_envs) < 0.3
        running += reward
        zeros = np.zeros(num_envs, np.float32)
        ours = update(ours, TimeStep(zeros, zeros, reward, zeros, last, {}))
        if (last & is_new).any():
            new = running[last & is_new]
            episodes += len(new)
            rate = min(1.0, len(new) / min(max(episodes, 1), 10))
            average += rate * (new.mean() - average)
            if episodes >= 10 and average > 3.0:
                count, episodes, average = count + 1, 0, 0.0
                is_new[:] = False
        is_new |= last
        running[last] = 0
        counts.append(count)
        assert int(count_successes(ours)[condition.key]) == count
    assert 2 <= counts[-1] < 60


CARTPOLE = {
    "environment": {
        "name": "CartPole-v1",
        "num_envs": 4,
        "length": {"from": 0.5, "to": 0.9, "when": {**WHEN, "above": 12.0}},
    },
    "network": {"name": "mlp", "layers": [8]},
    "updater": "ppo",
    "train": {"steps": 1_600, "unroll": 16, "seeds": 2, "log": {"every": 320}},
}


@pytest.mark.slow
def test_each_seed_has_its_own_successes_which_its_environment_follows():
    setup = build(recipe.load_recipe(CARTPOLE))
    engine = make_loop(setup)
    progress, log = engine.advance(engine.begin(), [5, 25])
    (counts,) = (each.count for each in progress.statistics.successes.values())
    assert counts.shape == (2,)
    assert np.all(counts > 0)
    lengths = np.asarray(log.metrics["environment.length"])[:, 1]
    expected = np.minimum(0.5 + 0.1 * np.asarray(counts), 0.9)
    np.testing.assert_allclose(lengths, expected, rtol=1e-6)


def test_a_condition_on_what_episodes_do_not_log_is_refused():
    data = {**CARTPOLE, "environment": {**CARTPOLE["environment"]}}
    when = {**WHEN, "metric": "retrun"}
    data["environment"]["length"] = {**data["environment"]["length"], "when": when}
    with pytest.raises(RlcliError) as error:
        make_loop(build(recipe.load_recipe(data))).temporary_bytes()
    assert mentions(str(error.value), "`retrun`", "`return`, `length`", "`return`")


@pytest.mark.slow
def test_a_run_that_follows_success_is_resumed_exactly(tmp_path):
    train = {**CARTPOLE["train"], "checkpoint": {"every": 320}}
    whole = rlcli.train({**CARTPOLE, "train": train}, run=tmp_path / "a", quiet=True)
    chunks = rlcli.chunks({**CARTPOLE, "train": train}, run=tmp_path / "b", quiet=True)
    next(chunks)
    chunks.close()
    rlcli.resume(tmp_path / "b", quiet=True)
    ends = [
        checkpoint.read(Run(run).latest_checkpoint())["progress"]
        for run in (whole, tmp_path / "b")
    ]
    assert any("successes" in path for path in ends[0])
    jax.tree.map(np.testing.assert_array_equal, *ends)
