"""Random network distillation: its errors, its scale, and what updaters learn from."""

import functools
from fractions import Fraction

import gymnasium
import jax
import numpy as np
import optax
import pytest
from tiers import quick_first

from rlcli import loop
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.loop import agents
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import mlp
from rlcli.preprocessing.normalization import normalizer
from rlcli.recipe import load_recipe, resolve
from rlcli.replays.uniform import uniform
from rlcli.tracers.multi_step import lambda_return, monte_carlo, n_step
from rlcli.types import Clock, Estimates, Policy, Report, Transition, Updater
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.intrinsic_rewards import IntrinsicReward, add_intrinsic_reward
from rlcli.updaters.intrinsic_rewards.rnd import rnd

SIZE, ENVS, STEPS, GAMMA = 3, 2, 4, 0.9
BOX = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


@functools.cache
def reward_part(**options):
    """RND on small networks, with its functions compiled."""
    spaces = Spaces(BOX, gymnasium.spaces.Discrete(2), ENVS)
    torso = mlp(layers=[16])

    def networks(name, head):
        return separate_network(name, torso, head(), BOX)

    def policies(**offers):
        raise AssertionError("an intrinsic reward has no policy")

    parts = Parts(spaces, networks, policies, optax.adam(1e-2))
    part = rnd(parts, gamma=GAMMA, **options)
    functions = ("init", "reward", "update", "observe")
    return part._replace(**{name: jax.jit(getattr(part, name)) for name in functions})


def unroll(index, next_obs=None):
    """Steps whose observations are far from 0."""
    rng = np.random.default_rng(index)
    shape = (STEPS, ENVS)
    obs, drawn = rng.normal(3.0, 2.0, (2, *shape, SIZE)).astype("f4")
    return Transition(
        obs=obs,
        action=np.zeros(shape, "i4"),
        reward=rng.normal(size=shape).astype("f4"),
        discount=np.ones(shape, "f4"),
        next_obs=drawn if next_obs is None else next_obs,
        first=np.zeros(shape, bool),
        last=rng.random(shape) < 0.3,
        extras={},
    )


def numpy_errors(state, steps):
    """Mean squared differences of the two networks, with NumPy in float64."""
    seen = state.observation
    ((mean,), (variance,)) = seen.mean, seen.variance
    obs = np.clip((steps.next_obs - mean) / np.sqrt(variance + 1e-8), -5, 5)

    def apply(params):
        (group,) = params.values()
        first, last = sorted(group)
        hidden = obs @ np.float64(group[first]["w"]) + group[first]["b"]
        return np.maximum(hidden, 0) @ group[last]["w"] + group[last]["b"]

    difference = apply(state.predictor.params) - apply(state.target)
    return np.mean(difference**2, axis=-1)


def test_the_reward_is_the_error_in_units_of_the_deviation_of_its_discounted_sum():
    part = reward_part(coefficient=0.5)
    assert part.observe is not None
    state, sums, running = part.init(jax.random.key(0)), [], np.zeros(ENVS)
    for index in range(3):
        steps = unroll(index)
        for errors in numpy_errors(state, steps):
            running = errors + GAMMA * running
            sums.append(running)
        state = part.observe(state, steps, state)
        seen = np.concatenate([unroll(i).obs for i in range(index + 1)]).reshape(-1, 3)
        np.testing.assert_allclose(state.observation.mean[0], seen.mean(0), rtol=1e-3)
    expected = 0.5 * numpy_errors(state, unroll(9)) / np.std(sums)
    np.testing.assert_allclose(part.reward(state, unroll(9)), expected, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("has_replay", quick_first([False, True]))
def test_the_deviation_is_that_of_errors_before_the_predictor_learns(has_replay):
    """As of the rewards themselves. Afterwards the errors are smaller."""
    part, steps = reward_part(epochs=8), unroll(0)
    report = Report(np.ones(ENVS, "f4"), {})
    inner = echo_updater()._replace(
        update=lambda state, *_: (state, report),
        estimate=lambda state, steps, key: Estimates(*[0 * steps.reward] * 4),
    )
    updater = add_intrinsic_reward(inner, part)
    if has_replay:
        replay = uniform(1, STEPS, ENVS, capacity=STEPS * ENVS, batch_size=6)
        times = {"updates": Fraction(4), "start": 0}
        agent = agents.replay_agent(updater, n_step(n=1), replay, **times)
    else:
        agent = agents.online_agent(updater, n_step(n=1))
    before = agent.init(jax.random.key(0), steps)
    noise = agent.draw(jax.random.key(1))
    after, _ = jax.jit(agent.learn)(before, steps, CLOCK, noise)
    state, running, sums = before.learner.reward, np.zeros(ENVS), []
    for errors in numpy_errors(state, steps):
        running = errors + GAMMA * running
        sums.append(running)
    learned = after.learner.reward
    np.testing.assert_allclose(learned.returns.variance, np.var(sums), rtol=1e-3)
    np.testing.assert_allclose(learned.running, running, rtol=1e-3)
    later = state._replace(predictor=learned.predictor)
    assert numpy_errors(later, steps).mean() < 0.9 * numpy_errors(state, steps).mean()


def test_the_reward_is_bounded_where_errors_have_been_0_so_far():
    """In units of √10⁻⁸ an error of about 1 would be 10 000."""
    for options, bound in (({}, 10.0), ({"reward_clip": 3.0}, 3.0)):
        part = reward_part(coefficient=0.5, **options)
        state = part.init(jax.random.key(0))
        known = state.predictor._replace(
            params={
                name.replace("random_target", "predictor"): group
                for name, group in state.target.items()
            }
        )
        state, known = state._replace(predictor=known), state
        assert part.observe is not None
        for index in range(3):
            state = part.observe(state, unroll(index), state)
        np.testing.assert_array_equal(part.reward(state, unroll(0)), 0)
        new = state._replace(predictor=known.predictor)
        np.testing.assert_allclose(part.reward(new, unroll(0)), 0.5 * bound)


@pytest.mark.slow
def test_the_error_falls_on_repeated_observations_and_is_high_on_new_ones():
    part = reward_part(epochs=4, minibatches=2)
    weight = np.ones((STEPS, ENVS), "f4")
    steps = unroll(0)
    assert part.observe is not None
    state = part.init(jax.random.key(0))
    state = part.observe(state, steps, state)
    before, target = part.reward(state, steps), state.target
    for index in range(30):
        key = jax.random.key(index)
        state, metrics = part.update(state, steps, weight, CLOCK, key)
    new = part.reward(state, unroll(5, next_obs=-steps.next_obs))
    after = part.reward(state, steps)
    before, new, after = map(np.asarray, (before, new, after))
    assert after.mean() < 0.1 * before.mean()
    assert after.mean() < 0.1 * new.mean()
    assert metrics["intrinsic_reward"] < 0.1 * before.mean()
    assert jax.tree.all(jax.tree.map(np.array_equal, target, state.target))


def test_rows_of_weight_0_do_not_change_the_predictor():
    part = reward_part()
    state, weight = part.init(jax.random.key(0)), np.ones((STEPS, ENVS), "f4")
    weight[:, 1] = 0
    steps, other = unroll(0), unroll(0)
    other.next_obs[:, 1] = 7.0
    first, second = (
        part.update(state, rows, weight, CLOCK, jax.random.key(0))[0].predictor.params
        for rows in (steps, other)
    )
    jax.tree.map(np.testing.assert_array_equal, first, second)


def echo_updater():
    """An updater whose state is the rows of its last update."""
    ones = np.ones((STEPS, ENVS), "f4")
    never = lambda *_: None  # noqa: E731 - a policy that is not used
    return Updater(
        init=lambda key: ones,
        acting=lambda state: (),
        policy=Policy(never, never, never, never, never),
        update=lambda state, batch, *_: (
            batch.reward,
            Report(ones[0], {"own": ones[0, 0]}),
        ),
        estimate=lambda *_: Estimates(ones, ones, ones, ones),
        failed_at=lambda state: np.int32(-1),
    )


def test_tracers_sum_the_rewards_of_environment_and_agent():
    def reward(state, steps):
        return state + steps.next_obs[..., 0]

    part = IntrinsicReward(
        init=lambda key: np.float32(2.0),
        reward=reward,
        update=lambda state, rows, weight, clock, key: (state + 1, {"mine": state}),
        failed_at=lambda state: np.int32(4),
    )
    tracer, updater = lambda_return(gamma=GAMMA), echo_updater()
    agent = agents.online_agent(add_intrinsic_reward(updater, part), tracer)
    steps = unroll(0)
    state = agent.init(jax.random.key(0), steps)
    learn = jax.jit(agent.learn)
    state, metrics = learn(state, steps, Clock.zero(), jax.random.key(0))
    total = steps._replace(reward=steps.reward + 2 + steps.next_obs[..., 0])
    expected = jax.jit(tracer.trace)(
        total, updater.estimate((), steps, jax.random.key(0))
    ).reward
    np.testing.assert_allclose(state.learner.learner, expected, rtol=1e-5)
    assert metrics == {"own": 1.0, "mine": 2.0}
    assert (float(state.learner.reward), int(agent.failed_at(state))) == (3.0, 4)


@pytest.mark.parametrize(
    "tracer",
    [lambda_return(gamma=GAMMA), n_step(n=3), monte_carlo()],
    ids=["lambda_return", "n_step", "monte_carlo"],
)
def test_it_learns_from_the_next_observation_of_every_step(tracer):
    """A row of several steps has the last one's `next_obs`; the reward saw them all."""
    part = IntrinsicReward(
        init=lambda key: np.zeros((STEPS, ENVS, SIZE), "f4"),
        reward=lambda state, steps: 0 * steps.reward,
        update=lambda state, rows, *_: (rows.next_obs, {}),
        failed_at=lambda state: np.int32(-1),
    )
    updater = add_intrinsic_reward(echo_updater(), part)
    steps = unroll(0)
    state = updater.init(jax.random.key(0))
    rows = jax.jit(
        lambda steps: agents._trace(tracer, updater, state, steps, jax.random.key(0))
    )(steps)
    learned = updater.update(state, rows, (), CLOCK, jax.random.key(0))[0].reward
    assert len(learned) == len(rows.reward) == STEPS - (tracer.window or 1) + 1
    np.testing.assert_array_equal(learned, steps.next_obs[: len(learned)])


@pytest.mark.slow
def test_the_next_observations_that_it_learns_from_are_normalized_as_others():
    part = IntrinsicReward(
        init=lambda key: (),
        reward=lambda state, steps: 0 * steps.reward,
        update=lambda state, rows, *_: (rows.next_obs, {}),
        failed_at=lambda state: np.int32(-1),
    )
    wrap = normalizer(BOX, ENVS, observation=True, reward=False, gamma=GAMMA)
    updater = wrap(add_intrinsic_reward(echo_updater(), part))
    steps = unroll(0)
    assert updater.observe is not None
    state = updater.init(jax.random.key(0))
    state = updater.observe(state, steps, state)
    rows = agents._trace(n_step(n=2), updater, state, steps, jax.random.key(0))
    learned = updater.update(
        state, rows, np.ones((3, 2), np.float32), CLOCK, jax.random.key(0)
    )[0].learner
    mean, spread = (getattr(steps.obs, name)((0, 1)) for name in ("mean", "std"))
    expected = (steps.next_obs[:-1] - mean) / spread
    np.testing.assert_allclose(learned.reward, expected, rtol=1e-4, atol=1e-4)


SMALL = {
    "environment": {"name": "bsuite/DeepSea", "size": 4, "num_envs": 2},
    "network": {"name": "mlp", "layers": [4]},
    "intrinsic_reward": "rnd",
    "train": {"steps": 64, "unroll": 4},
}
AGENTS = {
    "on-policy": {"updater": "a2c", "normalize": {"reward": True}},
    "replay": {"updater": "dqn", "replay": {"capacity": 32, "batch_size": 4}},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_agents_with_and_without_a_replay_are_traced_with_it(kind):
    parsed = load_recipe({**SMALL, **AGENTS[kind]})
    assert load_recipe(resolve(parsed)) == parsed
    engine = loop.make_loop(build(parsed)._replace(devices=1))
    begun = jax.eval_shape(engine.begin)
    progress, log = jax.eval_shape(lambda state: engine.advance(state, 1), begun)
    assert {"intrinsic_reward", "predictor_loss"} <= {*log.metrics}
    assert jax.tree.structure(progress) == jax.tree.structure(begun)


def test_a_recurrent_network_is_refused():
    network = {"name": "mlp", "memory": "gru"}
    with pytest.raises(RlcliError, match="`rnd` does not support recurrent networks"):
        build(load_recipe({**SMALL, **AGENTS["on-policy"], "network": network}))


def test_networks_with_batch_normalization_are_refused():
    batch_norm = {"name": "mlp", "layers": [4], "batch_norm": True}
    data = {**SMALL, **AGENTS["replay"], "updater": "crossq", "network": batch_norm}
    with pytest.raises(RlcliError, match="`rnd` does not support `batch_norm`"):
        build(load_recipe(data))
    network = {"default": batch_norm, "predictor": "mlp", "random_target": "mlp"}
    build(load_recipe({**data, "network": network}))


def test_rows_that_minibatches_do_not_divide_are_refused():
    with pytest.raises(RlcliError, match="cannot split 8 rows into 3 equal"):
        reward_part(minibatches=3).update(
            reward_part().init(jax.random.key(0)),
            unroll(0),
            np.ones((STEPS, ENVS), "f4"),
            CLOCK,
            jax.random.key(0),
        )


@pytest.mark.slow
def test_it_finds_the_treasure_of_deep_sea_that_the_same_agent_without_it_does_not():
    """When it does differs by processor: rounding decides between close actions."""
    found = {}
    for reward in ("rnd", None):
        sets = ["train.seeds=2", *([] if reward else ["intrinsic_reward=null"])]
        recipe = load_recipe("rnd_deep_sea", sets)
        setup = build(recipe)
        engine = loop.make_loop(setup)
        iterations = recipe.train.steps // setup.steps_per_iteration
        progress, _ = engine.advance(engine.begin(), iterations)
        found[reward] = progress.statistics.max_info["denoised_return"]
    assert found["rnd"].min() == 1 > found[None].max()
