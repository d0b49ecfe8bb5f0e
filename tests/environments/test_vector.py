"""The vector, compared with a simple loop over single cores."""

import functools
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli.environments.native.classic_control.cartpole import cartpole
from rlcli.environments.native.toy_text.frozen_lake import frozen_lake
from rlcli.environments.vector import keyed_environment, vector
from rlcli.errors import RlcliError
from rlcli.types import Core, TimeStep, key_as_noise


class Counted(NamedTuple):
    start: jax.Array
    count: jax.Array
    key: jax.Array  # a typed key among the leaves


def counter(*, length=1000, pay=1.0) -> Core:
    """Counts from a random start; ends after `length` steps; every step draws noise."""

    def observe(state):
        return {"count": state.count, "start": jnp.stack([state.start] * 2)}

    def reset(key):
        state = Counted(jax.random.uniform(key), jnp.int32(0), key)
        return state, observe(state)

    def step(state, action, noise):
        state = state._replace(count=state.count + 1)
        over = state.count >= length
        obs = observe(state)
        return state, TimeStep(
            obs=obs,
            next_obs=obs,
            reward=pay + action + noise,
            discount=1.0 - over.astype(jnp.float32),
            last=over,
            info={"twice": 2.0 * state.count},
        )

    return Core(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Dict(),
        action=gymnasium.spaces.Discrete(2),
        render=lambda state: np.full((2, 3, 3), int(state.count), np.uint8),
        draw=jax.random.uniform,
    )


def play(env, steps, key=0, action=0):
    """Plays: the first obs, every TimeStep stacked to `[T, B, ...]`, the last state."""
    actions = np.full(env.num_envs, action)

    @jax.jit
    def run(key):
        reset_key, step_key = jax.random.split(key)
        state, first = env.reset(reset_key)
        step = keyed_environment(env).step
        keys = jax.random.split(step_key, steps)
        state, timesteps = jax.lax.scan(
            lambda state, key: step(state, actions, key), state, keys
        )
        return first, timesteps, state

    first, timesteps, state = run(jax.random.key(key))
    return *jax.device_get((first, timesteps)), state


@functools.cache
def play_limited():
    """Two environments with a time limit of three."""
    return play(vector(lambda values: counter(), 2, time_limit=3), 7)


@functools.cache
def play_varied():
    """Five environments with their own values."""
    each = {"pay": np.float32([1.0, 10.0]), "length": np.array([2, 3, 4])}
    env = vector(lambda values: counter(**values), 5, each=each)
    return env, *play(env, 11)


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_time_limit_truncates_and_the_discount_stays_one():
    _, timesteps, _ = play_limited()
    expected = np.repeat([[0, 0, 1, 0, 0, 1, 0]], 2, axis=0).T.astype(bool)
    np.testing.assert_array_equal(timesteps.last, expected)
    np.testing.assert_array_equal(timesteps.discount, 1.0)


def test_an_end_by_the_rules_is_terminal_even_at_the_time_limit():
    lengths = {"length": np.array([3, 4])}
    env = vector(lambda values: counter(**values), 2, each=lengths, time_limit=4)
    _, timesteps, _ = play(env, 8)
    assert np.flatnonzero(timesteps.last[:, 0]).tolist() == [2, 5]
    assert np.flatnonzero(timesteps.last[:, 1]).tolist() == [3, 7]
    np.testing.assert_array_equal(timesteps.discount, 1.0 - timesteps.last)


def test_without_a_time_limit_only_the_rules_end_an_episode():
    _, timesteps, state = play(vector(lambda values: counter(), 2), 20)
    assert not timesteps.last.any()
    assert state.elapsed.tolist() == [20, 20]


def test_where_an_episode_ends_next_obs_is_its_own_and_obs_is_the_next_ones():
    first, timesteps, state = play_limited()
    starts, after = timesteps.obs["start"][..., 0], timesteps.next_obs["start"][..., 0]
    np.testing.assert_array_equal(
        timesteps.next_obs["count"][:, 0], [1, 2, 3] * 2 + [1]
    )
    np.testing.assert_array_equal(timesteps.obs["count"][:, 0], [1, 2, 0] * 2 + [1])
    np.testing.assert_array_equal(after[:3], np.stack([first["start"][:, 0]] * 3))
    np.testing.assert_array_equal(starts[2:5], np.stack([after[3]] * 3))
    assert not np.any(starts[2] == after[2])
    np.testing.assert_array_equal(timesteps.info["twice"][:, 0], [2, 4, 6] * 2 + [2])
    assert state.elapsed.tolist() == [1, 1]


@pytest.mark.parametrize("costly", quick_first([False, True]))
def test_cut_begins_new_episodes_and_last_is_what_the_environment_ends(costly):
    def core_of(values):
        return counter(**values)._replace(costly_reset=costly)

    each = {"length": np.array([2, 1000, 1000, 1000])}
    env = vector(core_of, 4, time_limit=3, each=each)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    step, action = jax.jit(env.step), np.zeros(4)
    noises = [env.draw(key) for key in jax.random.split(jax.random.key(1), 5)]
    cuts = np.zeros((5, 4), bool)
    cuts[1, :2] = cuts[2, 2] = True  # with an end, alone, and at the time limit
    counts, ends = [], []
    for noise, cut in zip(noises, cuts, strict=True):
        state, timestep = step(state, action, noise, cut)
        counts.append(timestep.obs["count"].tolist())
        ends.append(np.flatnonzero(timestep.last).tolist())
        assert np.all(timestep.next_obs["count"] > 0)
        assert np.all(timestep.discount[1:] == 1)
    assert counts == [
        [1, 1, 1, 1],
        [0, 0, 2, 2],
        [1, 1, 0, 0],
        [0, 2, 1, 1],
        [1, 0, 2, 2],
    ]
    assert ends == [[], [0], [2, 3], [0], [1]]
    assert state.elapsed.tolist() == [1, 0, 2, 2]


def test_environments_end_independently():
    _, _, timesteps, _ = play_varied()
    for index, length in enumerate((2, 3, 4, 2, 3)):
        expected = np.arange(length - 1, 11, length)
        np.testing.assert_array_equal(
            np.flatnonzero(timesteps.last[:, index]), expected
        )


@pytest.mark.parametrize("limit", [pytest.param(None, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize(
    "factory", [cartpole, functools.partial(frozen_lake, slippery=True)]
)
def test_the_vector_is_a_loop_over_cores(factory, limit):
    core, env = factory(), vector(lambda values: factory(), 4, time_limit=limit)
    core_step, step = jax.jit(core.step), jax.jit(env.step)
    state, _ = jax.device_get(jax.jit(env.reset)(jax.random.key(0)))
    noises = jax.jit(jax.vmap(env.draw))(jax.random.split(jax.random.key(1), 40))
    noises = jax.device_get(noises)
    actions = np.random.default_rng(0).integers(0, 2, (40, 4), np.int32)
    lone = [(jax.tree.map(lambda leaf, i=i: leaf[i], state.core), 0) for i in range(4)]
    ends = 0
    for t, action in enumerate(actions):
        noise = jax.tree.map(lambda leaf, t=t: leaf[t], noises)
        state, timestep = step(state, action, noise)
        timestep = jax.device_get(timestep)
        for i, (alone, elapsed) in enumerate(lone):
            mine = jax.tree.map(lambda leaf, i=i: leaf[i], (timestep, noise))
            alone, expected = jax.device_get(core_step(alone, action[i], mine[1].core))
            obs, elapsed, last = expected.obs, elapsed + 1, bool(expected.last)
            if last or elapsed == limit:
                (alone, obs), elapsed, last = mine[1].restart, 0, True
                ends += 1
            lone[i] = alone, elapsed
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
                mine[0],
                expected._replace(obs=obs, last=np.asarray(last)),
            )
    assert ends > 4


@pytest.mark.slow
def test_more_environments_change_nothing_for_the_others():
    def make(n):
        return vector(lambda values: frozen_lake(slippery=True), n, time_limit=5)

    def pole(n):
        return vector(lambda values: cartpole(), n)

    for env_of in (make, pole):
        few, many = play(env_of(3), 40), play(env_of(8), 40)
        equal(few[0], many[0][:3])
        for a, b in zip(few[1][:5], many[1][:5], strict=True):
            np.testing.assert_array_equal(a, b[:, :3])


def test_environments_and_keys_draw_different_noise():
    env = vector(lambda values: counter(), 5)
    keys = [jax.random.key(seed) for seed in range(4)]
    draw, reset = jax.jit(env.draw), jax.jit(env.reset)
    noises = [draw(key) for key in keys]
    drawn = [n.core for n in noises] + [n.restart[0].start for n in noises]
    assert len(np.unique(drawn)) == 40
    assert len(np.unique([reset(key)[0].core.start for key in keys])) == 20


def test_noise_drawn_in_advance_has_the_same_bits():
    env = vector(lambda values: frozen_lake(slippery=True), 4, time_limit=6)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 50)
    action = np.array([0, 1, 2, 3])

    @jax.jit
    def with_noise(state, noises):
        return jax.lax.scan(lambda s, n: env.step(s, action, n), state, noises)

    @jax.jit
    def with_keys(state, keys):
        step = keyed_environment(env).step
        return jax.lax.scan(lambda s, key: step(s, action, key), state, keys)

    ahead = with_noise(state, jax.jit(jax.vmap(env.draw))(keys))
    equal(ahead, with_keys(state, keys))
    assert keyed_environment(env).draw is key_as_noise


@pytest.mark.slow
def test_vmap_over_seeds_matches_separate_seeds():
    env = vector(lambda values: frozen_lake(slippery=True), 3, time_limit=6)

    def run(key):
        state, _ = env.reset(key)
        action, step = jnp.array([1, 2, 1]), keyed_environment(env).step
        keys = jax.random.split(key, 30)
        return jax.lax.scan(lambda state, key: step(state, action, key), state, keys)

    seeds = jax.random.split(jax.random.key(0), 4)
    together, alone = jax.jit(jax.vmap(run))(seeds), jax.jit(run)
    for i, seed in enumerate(seeds):
        equal(jax.tree.map(lambda leaf, i=i: leaf[i], together), alone(seed))


def test_a_compiled_step_matches_the_uncompiled_one():
    env = vector(lambda values: counter(), 2, time_limit=3)
    state, _ = env.reset(jax.random.key(0))
    noise = env.draw(jax.random.key(1))
    action = jnp.zeros(2)
    equal(
        jax.tree.map(_plain, env.step(state, action, noise)),
        jax.tree.map(_plain, jax.jit(env.step)(state, action, noise)),
    )


def _plain(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def test_environment_i_takes_value_i_mod_n_of_each():
    env, _, timesteps, _ = play_varied()

    @jax.jit
    def draw(key):
        keys = jax.random.split(jax.random.split(key)[1], 11)  # as in `play`
        return jax.vmap(env.draw)(keys).core

    pay = np.float32([1, 10, 1, 10, 1])
    np.testing.assert_array_equal(timesteps.reward, pay + draw(jax.random.key(0)))
    assert timesteps.last.sum(axis=0).tolist() == [5, 3, 2, 5, 3]


@pytest.mark.slow
def test_values_of_each_may_be_traced():
    def pay(values):
        env = vector(lambda each: counter(**each), 4, each={"pay": values})
        state, _ = env.reset(jax.random.key(0))
        noise = env.draw(jax.random.key(1))
        return env.step(state, jnp.zeros(4), noise)[1].reward - noise.core

    paid = jax.vmap(pay)(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_allclose(paid, [[1, 2, 1, 2], [3, 4, 3, 4]], rtol=1e-6)


def test_dtypes_follow_the_contract():
    env = vector(lambda values: cartpole(), 3, time_limit=5)
    state, obs = jax.eval_shape(env.reset, jax.random.key(0))
    noise = jax.eval_shape(env.draw, jax.random.key(0))
    action = jax.ShapeDtypeStruct((3,), jnp.int32)
    after, timestep = jax.eval_shape(env.step, state, action, noise)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), after) == jax.tree.map(
        lambda a: (a.shape, a.dtype), state
    )
    assert (obs.shape, obs.dtype) == ((3, 4), jnp.float32)
    assert (timestep.reward.shape, timestep.reward.dtype) == ((3,), jnp.float32)
    assert (timestep.discount.shape, timestep.discount.dtype) == ((3,), jnp.float32)
    assert (timestep.last.shape, timestep.last.dtype) == ((3,), jnp.bool_)
    assert (env.num_envs, env.pure) == (3, True)


def test_images_of_a_core_in_other_forms_are_bytes():
    core = counter()._replace(render=lambda state: np.full((2, 3), 0.2))
    env = vector(lambda values: core, 2)
    image = env.render(env.reset(jax.random.key(0))[0], 1)
    np.testing.assert_array_equal(image, np.full((2, 3, 3), 51, np.uint8), strict=True)


def test_render_draws_the_selected_environment_with_its_values():
    env, *_, state = play_varied()
    assert env.render(state, 0).max() == 1  # step 1 of its sixth episode
    assert env.render(state, 1).max() == 2
    assert env.render(state, 2).max() == 3

    poles = vector(
        lambda values: cartpole(**values), 2, each={"length": np.float32([0.3, 1.0])}
    )
    state, _ = jax.jit(poles.reset)(jax.random.key(0))
    assert not np.array_equal(poles.render(state, 0), poles.render(state, 1))


@pytest.mark.slow
@pytest.mark.parametrize("limit", quick_first([4, None]))
def test_costly_resets_happen_on_demand_with_the_same_episodes(limit):
    def make(costly):
        def core_of(values):
            return counter(length=6, **values)._replace(costly_reset=costly)

        each = {"pay": np.float32([1.0, 2.0])}
        return vector(core_of, 5, time_limit=limit, each=each, rendering=True)

    plain, costly = play(make(False), 20), play(make(True), 20)
    equal(plain[:2], costly[:2])
    assert plain[2].elapsed.tolist() == costly[2].elapsed.tolist()
    equal(plain[2].final.count, costly[2].final.count)


@pytest.mark.slow
def test_costly_resets_of_several_seeds_are_those_of_each():
    def core_of(values):
        return counter()._replace(costly_reset=True)

    env = vector(core_of, 4)
    keys = jax.random.split(jax.random.key(0), 3)
    actions, cut = jnp.zeros(4, int), jnp.array([True, False, True])
    step = functools.partial(jax.vmap, in_axes=(0, None, 0, 0))(env.step)
    state, _ = jax.vmap(env.reset)(keys)
    _, together = jax.jit(step)(state, actions, jax.vmap(env.draw)(keys), cut)
    for seed in range(3):
        state, _ = env.reset(keys[seed])
        noise = env.draw(keys[seed])
        _, alone = env.step(state, actions, noise, cut[seed])
        equal(jax.tree.map(lambda leaf, i=seed: leaf[i], together), alone)


def game(agents=2, length=3):
    """Agent i sees 10 · time + i, is paid its action, and ends at time i + 1."""

    def observe(count):
        return 10.0 * count + jnp.arange(agents, dtype=jnp.float32)[:, None]

    def reset(key):
        return jnp.int32(0), observe(jnp.int32(0))

    def step(count, action, noise):
        count += 1
        obs = observe(count)
        ended = count > jnp.arange(agents)
        over = count >= length
        return count, TimeStep(
            obs=obs,
            next_obs=obs,
            reward=action.astype(jnp.float32),
            discount=1.0 - ended,
            last=over,
            info={},
        )

    box = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    return Core(
        reset, step, box, gymnasium.spaces.Discrete(9), draw=key_as_noise, agents=agents
    )


def test_the_agents_of_a_game_are_environments_whose_episodes_end_together():
    env = vector(lambda _: game(), 4)
    assert env.num_envs == 4
    key = jax.random.key(0)
    state, first = env.reset(key)
    assert first[:, 0].tolist() == [0, 1, 0, 1]
    cut = jnp.array([False, False, True, False])  # an agent of the second game
    actions = jnp.array([1, 2, 3, 4])
    state, timestep = env.step(state, actions, env.draw(key), cut)
    assert timestep.reward.tolist() == [1, 2, 3, 4]
    assert timestep.discount.tolist() == [0, 1, 0, 1]
    assert timestep.next_obs[:, 0].tolist() == [10, 11, 10, 11]
    assert timestep.obs[:, 0].tolist() == [10, 11, 0, 1]
    ends = []
    for _ in range(3):
        state, timestep = env.step(state, actions, env.draw(key))
        ends.append(timestep.last.tolist())
    first_over, second_over = [True, True, False, False], [False, False, True, True]
    assert ends == [[False] * 4, first_over, second_over]
    assert timestep.next_obs[:, 0].tolist() == [10, 11, 30, 31]
    assert timestep.obs[:, 0].tolist() == [10, 11, 0, 1]


def test_the_agents_of_a_game_are_not_separated():
    with pytest.raises(RlcliError, match=r"has 2 agents.* but `num_envs` is 3") as e:
        vector(lambda _: game(), 3)
    assert e.value.hint == "make `num_envs` a multiple of 2"
