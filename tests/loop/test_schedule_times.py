"""Schedules in the loop: which time the environments, the policy and updates see.

All numbers of a recipe follow schedules from 1 to 0 here, so a value is 1 − t / steps.
The parts of these tests put them where the updater finds them: the reward is a number
of the environment, the action one of the policy.
"""

from typing import TypedDict

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli import recipe
from rlcli.assembly import build
from rlcli.environments.adapters.host import to_host_environment
from rlcli.loop import make_loop
from rlcli.loop.progress import Setup
from rlcli.runs.checkpoint import flatten_tree
from rlcli.types import (
    Core,
    Decision,
    Estimates,
    Policy,
    Report,
    TimeStep,
    Tracer,
    Updater,
    UpdaterTraits,
)

BOX = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
MOST = 64  # updates, and steps of an unroll, that are recorded
FALLING = {"from": 1.0, "to": 0.0}


def number_environment(*, number: float = 0.0) -> Core:
    """The reward is the number; there are no episodes but for a time limit."""

    def step(state, action, noise):
        obs = jnp.zeros(1)
        end = jnp.bool_(False)
        return state, TimeStep(obs, obs, jnp.float32(number), jnp.float32(1), end, {})

    return Core(lambda key: ((), jnp.zeros(1)), step, BOX, BOX)


def number_policy(observation, *, number: float = 0.0) -> Policy:
    """The action is the number."""
    del observation

    def act(acting, obs, state, first, noise):
        action = jnp.full((len(first), 1), number, jnp.float32)
        return Decision(action, {"log_prob": jnp.zeros(len(first))}), state

    def log_prob(outputs, action):
        return jnp.zeros(action.shape[:-1])

    return Policy(lambda batch: ((), ()), lambda key, batch: (), act, act, log_prob)


class Item(TypedDict):
    """A number within an option."""

    number: float


def number_tracer(*, number: float = 0.0) -> Tracer:
    """The number is the discount of the rows."""

    def trace(steps, estimates):
        return steps._replace(discount=jnp.full_like(steps.discount, number))

    return Tracer(1, trace, gamma=0.9)


def recorder(
    parts,
    *,
    number: float = 0.0,
    more: list[Item] = [],  # noqa: B006 - never mutated
) -> Updater:
    """Records, for each update, its numbers, that of the tracer and the rows."""

    def update(state, batch, weight, clock, key):
        seen = {
            **{f"{i}": jnp.float32(x["number"])[None] for i, x in enumerate(more)},
            "updater": jnp.float32(number)[None],
            "tracer": batch.discount[:1, 0],
            "policy": batch.action[:, 0, 0],
            "environment": batch.reward[:, 0],
        }
        after = {
            name: state[name].at[clock.updates, : len(row)].set(row)
            for name, row in seen.items()
        }
        return after, Report(jnp.zeros(batch.reward.shape[1:]), {})

    def init(key):
        names = ("updater", "tracer", "policy", "environment")
        names += tuple(map(str, range(len(more))))
        return {name: jnp.full((MOST, MOST), jnp.nan) for name in names}

    def estimate(state, steps, key):
        zero = jnp.zeros_like(steps.reward)
        return Estimates(zero, zero, zero, zero)

    return Updater(
        init=init,
        acting=lambda state: (),
        policy=parts.policies(),
        update=update,
        estimate=estimate,
        failed_at=lambda state: jnp.int32(-1),
        traits=UpdaterTraits(is_data_parallel=True),
    )


def setup_of(num_envs: int, train: dict, schedule: dict = FALLING, **sections) -> Setup:
    """A setup in which every part has a number with the schedule."""
    parts = {
        "environment": {"name": number_environment, "num_envs": num_envs},
        "policy": {"name": number_policy},
        "tracer": {"name": number_tracer},
        "updater": {"name": recorder},
    }
    data = {
        name: part | {"name": f"{__name__}:{part['name'].__name__}", "number": schedule}
        for name, part in parts.items()
    }
    for name in ("environment", "updater"):
        data[name] |= sections.pop(name, {})
    return build(recipe.load_recipe({**data, "train": train, **sections}))


def hosted(setup: Setup) -> Setup:
    """The same setup, with its environments on the host."""
    host = to_host_environment(setup.environment, len(setup.seeds))
    return setup._replace(environment=host, at=lambda given: (host, setup.at(given)[1]))


def seen_by(setup: Setup, points: list[int]) -> tuple[dict, dict]:
    """What the parts have seen, `[update, row]`, and the logged metrics, by point."""
    loop = make_loop(setup)
    progress, log = loop.advance(loop.begin(), points)
    state = progress.agent
    state = flatten_tree(state.learner)
    metrics = {name: leaf[0, : len(points)] for name, leaf in log.metrics.items()}
    return {name: np.asarray(leaf)[0] for name, leaf in state.items()}, metrics


EIGHTHS = np.arange(8, 0, -1) / 8  # 1, 7/8, …, 1/8


@pytest.mark.parametrize("is_host", [False, True])
@pytest.mark.slow
def test_eight_updates_from_1_to_0_see_1_to_an_eighth(is_host):
    """The first update sees the start of the run; the last one changes something."""
    setup = setup_of(1, {"steps": 8})
    seen, logged = seen_by(hosted(setup) if is_host else setup, [*range(1, 9)])
    for name in ("updater", "tracer", "policy"):
        np.testing.assert_allclose(seen[name][:8, 0], EIGHTHS, rtol=1e-6)
        assert np.isnan(seen[name][8:]).all()
    np.testing.assert_allclose(logged["updater.number"], EIGHTHS, rtol=1e-6)
    np.testing.assert_allclose(logged["tracer.number"], EIGHTHS, rtol=1e-6)
    np.testing.assert_allclose(logged["environment.number"], EIGHTHS, rtol=1e-6)
    assert set(logged) == {"environment.number", "updater.number", "tracer.number"}
    if not is_host:  # host environments have no schedules
        np.testing.assert_allclose(seen["environment"][:8, 0], EIGHTHS, rtol=1e-6)


@pytest.mark.parametrize("data_parallel", [1, 2])
@pytest.mark.slow
def test_an_update_sees_the_time_at_which_its_unroll_began(data_parallel):
    """Four environments, unrolls of 3 steps, 48 steps: updates at 0, 12, 24, 36."""
    setup = setup_of(4, {"steps": 48, "unroll": 3, "data_parallel": data_parallel})
    seen, logged = seen_by(setup, [1, 2, 4])
    for name in ("updater", "tracer"):
        np.testing.assert_allclose(seen[name][:4, 0], [1, 0.75, 0.5, 0.25], rtol=1e-6)
    np.testing.assert_allclose(logged["updater.number"], [1, 0.75, 0.25], rtol=1e-6)
    # Step t of the environments sees t, and so does the action of that step.
    first, last = [1, 1 - 4 / 48, 1 - 8 / 48], [12 / 48, 8 / 48, 4 / 48]
    for name in ("policy", "environment"):
        np.testing.assert_allclose(seen[name][0, :3], first, rtol=1e-6)
        np.testing.assert_allclose(seen[name][3, :3], last, rtol=1e-6)


def test_the_last_update_sees_a_time_before_the_end_if_unrolls_exceed_the_steps():
    """`steps` of 10 are rounded up to three unrolls of 4, which begin at 0, 4 and 8."""
    seen, _ = seen_by(setup_of(2, {"steps": 10, "unroll": 2}), [3])
    np.testing.assert_allclose(seen["updater"][:3, 0], [1, 0.6, 0.2], rtol=1e-5)


SCHEDULES = [  # with the values at t = 0, 4, 8, 12 of 16
    ({"from": 2, "to": 1, "over": 8}, [2, 1.5, 1, 1]),
    ({"from": 2, "to": 1, "over": "50%"}, [2, 1.5, 1, 1]),
    ({"from": 0, "to": 1}, [0, 0.25, 0.5, 0.75]),
    ({"name": "cosine", "from": 1, "to": 0}, [1, 0.853553, 0.5, 0.146447]),
    (
        {"name": "exponential", "from": 1, "rate": 0.25},
        [1, 0.367879, 0.135335, 0.049787],
    ),
    ({"name": "inverse", "from": 1, "rate": 0.25}, [1, 1 / 2, 1 / 3, 1 / 4]),
    ({"steps": [[0, 3], [4, 2], [9, 1]]}, [3, 2, 2, 1]),
]


@pytest.mark.slow
def test_every_schedule_is_read_at_the_beginning_of_an_unroll():
    items = [{"number": schedule} for schedule, _ in SCHEDULES]
    train = {"steps": 16, "unroll": 2}
    seen, logged = seen_by(setup_of(2, train, updater={"more": items}), [1, 2, 3, 4])
    for index, (schedule, expected) in enumerate(SCHEDULES):
        for values in (
            seen[f"{index}"][:4, 0],
            logged[f"updater.more.{index}.number"],
        ):
            np.testing.assert_allclose(values, expected, 1e-5, err_msg=f"{schedule}")


@pytest.mark.parametrize(
    ("unroll", "is_host"),
    quick_first([(4, False), (1, True), (1, False), (4, True)]),
)
def test_a_schedule_per_episode_sees_the_episodes_that_had_ended(unroll, is_host):
    """Episodes of 3 steps in two environments: 2 ⌊t / 3⌋ after t steps of each."""
    schedule = {"from": 0, "to": 100, "over": 100, "per": "episode"}
    setup = setup_of(
        2, {"steps": 24, "unroll": unroll}, schedule, environment={"time_limit": 3}
    )
    if is_host:
        setup = hosted(setup)
    updates = 12 // unroll
    seen, logged = seen_by(setup, [*range(1, updates + 1)])
    expected = 2 * (np.arange(updates) * unroll // 3)
    np.testing.assert_allclose(seen["updater"][:updates, 0], expected)
    np.testing.assert_allclose(logged["updater.number"], expected)
    actions = seen["policy"][:updates, :unroll].ravel()
    np.testing.assert_allclose(actions, 2 * (np.arange(12) // 3))


REPLAY = {"name": "uniform", "capacity": 64, "batch_size": 4}
TWICE = [6, 6, 8, 8, 10, 10, 12, 12, 14, 14]


@pytest.mark.parametrize(
    ("updates", "times", "is_host"),
    quick_first(
        [  # Two environments; updates begin after 6 of 16 steps: iteration 4
            ({"per_step": 0.25}, [8, 12], False),
            (2, TWICE, True),
            (1, [6, 8, 10, 12, 14], True),
            (1, [6, 8, 10, 12, 14], False),
            (2, TWICE, False),
            ({"per_step": 0.25}, [8, 12], True),
        ]
    ),
)
def test_updates_from_a_replay_see_the_time_at_which_their_unroll_began(
    updates, times, is_host
):
    setup = setup_of(2, {"steps": 16, "start": 6, "updates": updates}, replay=REPLAY)
    seen, logged = seen_by(hosted(setup) if is_host else setup, [8])
    expected = 1 - np.array(times) / 16
    np.testing.assert_allclose(seen["updater"][: len(times), 0], expected, rtol=1e-6)
    assert np.isnan(seen["updater"][len(times) :]).all()
    np.testing.assert_allclose(logged["updater.number"], expected[-1:], rtol=1e-6)


BANDIT = {
    "environment": "probe-constant-reward",
    "updater": {"name": "q_learning", "loss": "mse"},
    "network": {"name": "mlp", "layers": []},  # the observation is 0: only a bias
    "policy": {"name": "epsilon_greedy", "epsilon": 0.0},
    "optimizer": {"name": "sgd", "learning_rate": {"from": 0.25, "to": 0.0}},
    "train": {"steps": 4},
}


@pytest.mark.slow
def test_an_agent_learns_with_the_rates_of_the_schedule():
    """The loss is (1 − q)², so a step with α = 1/4, 3/16, 1/8, 1/16 is q + 2α (1 − q).

    After four of them 1 − q is 1/2 · 5/8 · 3/4 · 7/8.
    """
    loop = make_loop(build(recipe.load_recipe(BANDIT)))
    progress, _ = loop.advance(loop.begin(), 4)
    leaves = flatten_tree(progress.agent.learner.params)
    (values,) = (leaf for name, leaf in leaves.items() if name.endswith("/b"))
    expected = 0.5 * 0.625 * 0.75 * 0.875
    np.testing.assert_allclose(1 - np.max(values), expected, rtol=1e-6)


@pytest.mark.slow
def test_each_run_of_a_program_has_its_own_schedule():
    """Of two runs that are trained together: from 1/4 and from 1 to 0 over 4 steps."""
    setup = build(recipe.load_recipe(BANDIT), (0, 1))
    place = "optimizer.learning_rate.from"
    assert place in setup.numbers
    loop = make_loop(setup._replace(numbers={**setup.numbers, place: (0.25, 1.0)}))
    _, log = loop.advance(loop.begin(), [1, 3, 4])
    logged = log.metrics["optimizer.learning_rate"][:, :3]
    np.testing.assert_allclose(logged, [[1 / 4, 1 / 8, 1 / 16], [1, 1 / 2, 1 / 4]])


@pytest.mark.slow
def test_a_schedule_in_a_list_is_logged_by_the_name_of_its_part_if_there_is_one():
    kl = {"name": "kl", "weight": FALLING}
    regularizers = [{"name": "entropy", "weight": FALLING}, kl, {**kl, "to": "old"}]
    data = {
        "environment": "CartPole-v1",
        "updater": {"name": "a2c", "regularizers": regularizers},
        "train": {"steps": 8, "unroll": 2},
    }
    loop = make_loop(build(recipe.load_recipe(data)))
    _, log = loop.advance(loop.begin(), [1, 4])
    for part in ("entropy", "1", "2"):
        logged = log.metrics[f"updater.regularizers.{part}.weight"][0, :2]
        np.testing.assert_allclose(logged, [1, 0.25])


@pytest.mark.slow
def test_the_updates_of_an_offline_run_see_one_step_each():
    changes = ["train.steps=8", "optimizer.learning_rate={from: 1, to: 0}"]
    loop = make_loop(build(recipe.load_recipe("behaviour_cloning_cartpole", changes)))
    _, log = loop.advance(loop.begin(), [1, 5, 8])
    logged = log.metrics["optimizer.learning_rate"][0, :3]
    np.testing.assert_allclose(logged, [1, 0.5, 0.125])


def test_a_generation_sees_the_time_at_which_it_began():
    pytest.importorskip("evosax")
    data = {
        "environment": {"name": "CartPole-v1", "num_envs": 4},
        "network": {"name": "mlp", "layers": [4]},
        "updater": "open_es",
        "optimizer": {"name": "sgd", "learning_rate": FALLING},
        "train": {"steps": 80, "unroll": 5},
    }
    loop = make_loop(build(recipe.load_recipe(data)))
    _, log = loop.advance(loop.begin(), [1, 2, 4])
    logged = log.metrics["optimizer.learning_rate"][0, :3]
    np.testing.assert_allclose(logged, [1, 0.75, 0.25])
