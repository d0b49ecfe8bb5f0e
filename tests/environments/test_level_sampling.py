"""Levels: episodes of a finite set, chosen uniformly or by regret."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first
from wording import mentions

from rlcli import recipe
from rlcli.assembly import build
from rlcli.environments.level_sampling import (
    LevelState,
    level_probabilities,
    level_sampler,
)
from rlcli.errors import RlcliError
from rlcli.loop import make_loop

COUNT, ENVS = 6, 4


def known(best, mean, visits, played, episodes) -> LevelState:
    return LevelState(
        level=jnp.zeros(ENVS, jnp.int32),
        total=jnp.zeros(ENVS),
        best=jnp.asarray(best, jnp.float32),
        mean=jnp.asarray(mean, jnp.float32),
        visits=jnp.asarray(visits, jnp.int32),
        played=jnp.asarray(played, jnp.int32),
        episodes=jnp.int32(episodes),
    )


def test_probabilities_are_those_of_the_paper():
    """Worked out by hand: four of five levels have been played."""
    state = known(
        [1, 1, 0, 2, -np.inf],
        [0.5, 1, 0, 0.2, 0],
        [2, 1, 1, 3, 0],
        [7, 9, 3, 8, -1],
        10,
    )
    probabilities = np.asarray(level_probabilities(state, 0.5, 0.3))
    rank = np.array([2, 3, 4, 1, np.inf])  # of the regrets 0.5, 0, 0, 1.8
    mass = rank ** (-2.0)
    age = np.array([3, 1, 7, 2, 0])
    expected = 0.7 * mass / mass.sum() + 0.3 * age / age.sum()
    expected = 0.8 * expected + 0.2 * np.array([0, 0, 0, 0, 1])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)


@pytest.mark.slow
def test_at_first_all_levels_are_equally_probable():
    sampler = level_sampler(COUNT, 0, by_regret=True, temperature=0.1, staleness=0.1)
    state = sampler.begin(jax.random.split(jax.random.key(0), 0))
    probabilities = level_probabilities(state, 0.1, 0.1)
    np.testing.assert_allclose(probabilities, np.full(COUNT, 1 / COUNT), rtol=1e-6)


@pytest.mark.slow
def test_returns_are_counted_for_the_level_that_was_played():
    """Compared with a loop in Python."""
    rng = np.random.default_rng(0)
    sampler = level_sampler(COUNT, 0, by_regret=True, temperature=0.3, staleness=0.2)
    state = sampler.begin(jax.random.split(jax.random.key(1), ENVS))
    step = jax.jit(sampler.step)
    best, mean, visits = np.full(COUNT, -np.inf), np.zeros(COUNT), np.zeros(COUNT, int)
    total = np.zeros(ENVS)
    for index in range(200):
        reward = rng.normal(size=ENVS).astype(np.float32)
        last = rng.random(ENVS) < 0.3
        cut = rng.random(ENVS) < 0.1
        before = np.asarray(state.level)
        total += reward
        for level in range(COUNT):
            new = total[last & (before == level)]
            if len(new):
                visits[level] += len(new)
                best[level] = max(best[level], new.max())
                rate = min(1.0, len(new) / min(visits[level], 4))
                mean[level] += rate * (new.mean() - mean[level])
        total[last | cut] = 0
        keys = jax.random.split(jax.random.fold_in(jax.random.key(2), index), ENVS)
        state = step(state, reward, last, last | cut, keys)
        same = ~(last | cut)
        np.testing.assert_array_equal(np.asarray(state.level)[same], before[same])
    np.testing.assert_array_equal(state.visits, visits)
    np.testing.assert_allclose(state.best, best, rtol=1e-4)
    np.testing.assert_allclose(state.mean, mean, atol=1e-4)
    np.testing.assert_allclose(state.total, total, atol=1e-4)
    assert visits.min() > 0


@pytest.mark.parametrize("by_regret", quick_first([True, False]))
def test_levels_are_drawn_with_their_probabilities(by_regret):
    sampler = level_sampler(
        COUNT, 0, by_regret=by_regret, temperature=0.5, staleness=0.3
    )
    state = known(
        [1, 1, 0, 2, 1, 1], [0.5, 1, 0, 0.2, 0, 0.9], [2] * 6, [7, 9, 3, 8, 1, 2], 10
    )
    keys = jax.random.split(jax.random.key(3), 4_000)
    state = state._replace(level=jnp.zeros(4_000, jnp.int32), total=jnp.zeros(4_000))
    nothing, always = jnp.zeros(4_000), jnp.ones(4_000, bool)
    drawn = sampler.step(state, nothing, ~always, always, keys).level
    found = np.bincount(drawn, minlength=COUNT) / 4_000
    expected = (
        level_probabilities(state, 0.5, 0.3) if by_regret else np.full(COUNT, 1 / 6)
    )
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_uniform_samplers_store_nothing_for_each_level():
    sampler = level_sampler(10**9, 0, by_regret=False, temperature=0.1, staleness=0.1)
    state = sampler.begin(jax.random.split(jax.random.key(0), ENVS))
    ended = jnp.ones(ENVS, bool)
    keys = jax.random.split(jax.random.key(1), ENVS)
    state = sampler.step(state, jnp.ones(ENVS), ended, ended, keys)
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == 2 * ENVS + 1
    assert state.level.max() > 10**6 and state.episodes == 2 * ENVS


DOORKEY = {
    "environment": {
        "name": "MiniGrid-DoorKey-5x5-v0",
        "num_envs": 4,
        "time_limit": 8,
        "levels": {"count": 3, "first": 5, "by": "regret"},
    },
    "network": {"name": "mlp", "layers": [8]},
    "updater": "a2c",
    "train": {"steps": 640, "unroll": 16, "seeds": 2},
}


def first_images(environment, steps: int, seed: int) -> dict[int, set[bytes]]:
    """The first observations of the episodes of each level."""
    found: dict[int, set[bytes]] = {}
    state, obs = jax.jit(environment.reset)(jax.random.key(seed))
    step = jax.jit(environment.step)
    begins = np.ones(environment.num_envs, bool)
    for index in range(steps):
        levels = np.asarray(environment.parameters(state)["level"])
        for env in np.flatnonzero(begins):
            image = np.asarray(obs["image"][env]).tobytes()
            found.setdefault(int(levels[env]), set()).add(image)
        noise = environment.draw(jax.random.fold_in(jax.random.key(9), index))
        actions = np.full(environment.num_envs, 6, np.int32)
        state, timestep = step(state, actions, noise)
        obs, begins = timestep.obs, np.asarray(timestep.last)
    return found


@pytest.mark.parametrize("on_demand", quick_first([False, True]))
def test_an_episode_of_a_level_always_begins_in_the_same_state(on_demand, monkeypatch):
    from rlcli.xla import backend

    monkeypatch.setattr(backend, "is_cpu", lambda: on_demand)
    environment = build(recipe.load_recipe(DOORKEY)).environment
    found = [first_images(environment, 40, seed) for seed in (0, 1)]
    assert set(found[0]) == {5, 6, 7}
    assert all(len(images) == 1 for images in found[0].values())
    assert found[0] == found[1]
    assert len(set.union(*found[0].values())) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library"), [("MetaMaze-v0", "jax"), ("gymnax/MetaMaze-misc", "gymnax")]
)
def test_the_hidden_goal_of_a_maze_belongs_to_its_level(name, library):
    pytest.importorskip(library)
    levels = {"count": 3, "by": "regret"}
    data = {
        **DOORKEY,
        "environment": {
            "name": name,
            "num_envs": 6,
            "time_limit": 3,
            "levels": levels,
        },
    }
    environment = build(recipe.load_recipe(data)).environment
    state, _ = jax.jit(environment.reset)(jax.random.key(0))
    step, goals = jax.jit(environment.step), {}
    for index in range(12):
        core = getattr(state.core, "state", state.core)  # of a library, or our own
        of_each = environment.parameters(state)["level"]
        for level, goal in zip(np.asarray(of_each), np.asarray(core.goal), strict=True):
            goals.setdefault(int(level), set()).add(tuple(np.ravel(goal).tolist()))
        noise = environment.draw(jax.random.fold_in(jax.random.key(9), index))
        state, _ = step(state, np.zeros(6, np.int32), noise)
    assert set(goals) == {0, 1, 2}
    assert all(len(found) == 1 for found in goals.values())
    assert len(set.union(*goals.values())) > 1


@pytest.mark.slow
def test_a_stopped_run_chooses_the_same_levels():
    environment = {**DOORKEY["environment"], "name": "CartPole-v1"}  # a small program
    data = {**DOORKEY, "environment": environment}
    engine = make_loop(build(recipe.load_recipe(data)))
    whole, _ = engine.advance(engine.begin(), 6)
    part, _ = engine.advance(engine.begin(), 3)
    again, _ = engine.restore(jax.device_get(engine.save(part)))
    end, _ = engine.advance(again, 3)
    levels = [progress.environment.levels for progress in (whole, end)]
    jax.tree.map(np.testing.assert_array_equal, *levels)
    assert np.all(np.asarray(levels[0].visits).sum(axis=1) > 20)
    assert levels[0].visits.shape == (2, 3)


def test_a_library_on_the_host_chooses_its_levels_itself():
    pytest.importorskip("gymnasium")
    data = {
        **DOORKEY,
        "environment": {"name": "gymnasium/CartPole-v1", "levels": {"count": 3}},
    }
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe(data)
    assert mentions(str(error.value), "another library", "`levels`")
