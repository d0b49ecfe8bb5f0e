"""Evolution strategies: fitness, acting members, and rising returns."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.registry.libraries import install_command
from rlcli.types import Clock, Decision, Policy, Transition
from rlcli.updaters.evolution.evolution_strategies import (
    NOT_FAILED,
    _flat_optimizer,
    _population_policy,
    fitness,
)

MEMBERS = 16
slow = pytest.mark.slow


def unroll(reward, last, cut):
    """Steps with raw rewards; `cut` says which members the end of the unroll cuts."""
    reward, last = np.asarray(reward), np.asarray(last)
    nothing, flags = np.zeros_like(reward), np.zeros_like(last)
    cuts = flags.copy()
    cuts[-1] = cut
    extras = {"reward": reward.astype("f4"), "cut": cuts}
    rest = (nothing + 1, nothing, flags, last)
    return Transition(nothing, nothing, nothing, *rest, extras)


def reference_fitness(reward, last, cut):
    """The fitness computed episode by episode."""
    episodes, running, ended = [], 0.0, True
    for step in range(len(reward)):
        running += reward[step]
        ended = last[step]
        if ended:
            episodes.append(running)
            running = 0.0
    if len(episodes) > 1 and cut:
        episodes.pop()
    return np.mean(episodes)


def test_fitness_is_the_mean_return_of_complete_episodes():
    rng = np.random.default_rng(0)
    steps, batch = 20, 400
    reward = rng.normal(size=(steps, batch))
    last = rng.random((steps, batch)) < 0.15
    last[-1] = True  # every unroll ends with a reset
    cut = rng.random(batch) < 0.5
    found = jax.jit(fitness)(unroll(reward, last, cut))
    columns = zip(reward.T, last.T, cut, strict=True)
    expected = [reference_fitness(*column) for column in columns]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_cut_episode_counts_if_it_is_the_only_one():
    reward, last = (
        np.ones((3, 2)),
        np.array([[False, True], [False, False], [True] * 2]),
    )
    found = jax.jit(fitness)(unroll(reward, last, [True, True]))
    np.testing.assert_allclose(found, [3.0, 1.0])


@pytest.mark.parametrize("unroll_length", [10, 12])
def test_an_episode_that_reaches_the_time_limit_at_the_end_of_an_unroll_counts(
    unroll_length,
):
    """Pendulum never terminates: with a limit of 5 steps, ten steps are two episodes.

    With twelve, the end of the unroll cuts the third after two steps.
    """
    pytest.importorskip("evosax")
    environment = {"name": "Pendulum-v1", "time_limit": 5, "num_envs": MEMBERS}
    train = {"steps": MEMBERS * 120, "unroll": unroll_length}
    data = probe_recipe("open_es", environment=environment, train=train)
    engine = loop.make_loop(build(recipe.load_recipe(data)))
    progress, log = engine.advance(engine.begin(), 1)
    rows = jax.tree.map(lambda leaf: np.asarray(leaf[0]), progress.unroll)
    assert rows.last[[4, 9]].all() and rows.last[-1].all()
    assert np.all(rows.extras["cut"][-1] == (unroll_length == 12))
    assert not rows.extras["cut"][:-1].any()
    expected = rows.reward[:10].sum(axis=0) / 2
    np.testing.assert_allclose(log.metrics["fitness"][0, 0], expected.mean(), rtol=1e-5)
    best = log.metrics["fitness_best"][0, 0]
    np.testing.assert_allclose(best, expected.max(), rtol=1e-5)


def test_a_tracer_of_several_steps_is_refused():
    pytest.importorskip("evosax")
    with pytest.raises(RlcliError, match="`open_es` requires rows of single steps"):
        build(recipe.load_recipe(probe_recipe("open_es", tracer={"n": 3})))


def probe_recipe(updater, **more):
    """A recipe on the probe that rewards the correct action."""
    return {
        "environment": {"name": "probe-reward-depends-on-action", "num_envs": MEMBERS},
        "network": "linear",
        "updater": updater,
        "optimizer": {"name": "sgd", "learning_rate": 0.2},
        "train": {"steps": MEMBERS * 800, "unroll": 4},
        **more,
    }


def test_without_its_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "evosax", None)
    monkeypatch.setitem(sys.modules, "evosax.algorithms", None)
    with pytest.raises(RlcliError, match=r"`evosax.algorithms` cannot be") as caught:
        build(recipe.load_recipe(probe_recipe("open_es")))
    assert caught.value.hint == install_command("evolution")


def test_unrolls_of_evolution_begin_with_a_reset_by_default():
    assert recipe.load_recipe(probe_recipe("open_es")).train.reset
    train = {"steps": 1_000, "unroll": 4, "reset": False}
    assert not recipe.load_recipe(probe_recipe("open_es", train=train)).train.reset


def test_a_grouped_optimizer_updates_a_flat_vector_like_the_groups():
    params = {"a": np.arange(3, dtype="f4"), "b": {"w": np.ones((2, 2), "f4")}}
    optimizer = optax.adam(0.1)

    @jax.jit
    def updates(params):
        flat, unravel = ravel_pytree(params)
        gradient = jnp.linspace(-1.0, 1.0, flat.size)
        ours = _flat_optimizer(optimizer, unravel)
        found, _ = ours.update(gradient, ours.init(flat), flat)
        state = optimizer.init(params)
        expected, _ = optimizer.update(unravel(gradient), state, params)
        return found, ravel_pytree(expected)[0]

    np.testing.assert_allclose(*updates(params))


@pytest.mark.parametrize(
    ("updater", "num_envs", "message"),
    [
        ("open_es", 5, "needs an even number of members, but `num_envs` is 5"),
        (
            {"name": "open_es", "antithetic": False},
            5,
            "needs an even number of members, but `num_envs` is 5",
        ),
        ("cma_es", 1, "needs at least 2 members"),
        ("simple_ga", 1, "needs at least 2 members"),
        ({"name": "simple_ga", "elite": 3}, 3, "keeps 3 of 3 members unchanged"),
    ],
)
def test_an_impossible_population_size_is_refused(updater, num_envs, message):
    environment = {"name": "probe-reward-depends-on-action", "num_envs": num_envs}
    with pytest.raises(RlcliError, match=message):
        build(recipe.load_recipe(probe_recipe(updater, environment=environment)))


@pytest.fixture(
    scope="module",
    params=[
        {"name": "open_es", "deviation": 0.5},
        pytest.param({"name": "cma_es", "deviation": 0.5}, marks=slow),
        pytest.param(
            {"name": "simple_ga", "deviation": 0.5, "crossover": 0.3}, marks=slow
        ),
    ],
    ids=["open_es", "cma_es", "simple_ga"],
)
def evolved_run(request):
    """A setup, its progress after one generation and after 30."""
    pytest.importorskip("evosax")
    setup = build(recipe.load_recipe(probe_recipe(request.param)))
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), 1)
    early = jax.tree.map(np.asarray, progress.agent)
    progress, log = engine.advance(progress, 29)
    metrics = jax.tree.map(lambda leaf: leaf[:, 0], log.metrics)
    return setup, early, jax.tree.map(np.asarray, progress), metrics


def test_every_strategy_finds_the_rewarded_action(evolved_run):
    setup, _, progress, metrics = evolved_run
    agent = setup.agent
    assert int(agent.failed_at(progress.agent)[0]) == -1
    acting = jax.tree.map(lambda leaf: leaf[0], agent.acting(progress.agent))
    state, noise = agent.policy.initial(3), agent.policy.draw(jax.random.key(0), 3)
    seen = (jnp.zeros((3, 1)), state, jnp.ones(3, bool), noise)
    decision, _ = agent.policy.exploit(acting, *seen)
    np.testing.assert_array_equal(decision.action, 1)
    assert float(metrics["fitness_best"][0]) == 1.0


def test_members_differ_and_change_between_generations(evolved_run):
    setup, early, progress, _ = evolved_run
    agent = setup.agent
    before = jax.tree.leaves(agent.acting(early)["members"])[0][0]
    after = jax.tree.leaves(agent.acting(progress.agent)["members"])[0][0]
    assert before.shape[0] == MEMBERS
    assert len(np.unique(before.reshape(MEMBERS, -1), axis=0)) == MEMBERS
    assert not np.allclose(before, after)


def vectors(members):
    """The members of the only seed as vectors `[MEMBERS, D]`."""
    leaves = [np.asarray(leaf[0]) for leaf in jax.tree.leaves(members)]
    return np.concatenate([leaf.reshape(MEMBERS, -1) for leaf in leaves], axis=1)


@pytest.mark.parametrize("elite", [2, pytest.param(0, marks=slow)])
def test_the_fittest_members_stay_unchanged(elite):
    pytest.importorskip("evosax")
    updater = {"name": "simple_ga", "deviation": 0.5, "elite": elite}
    engine = loop.make_loop(build(recipe.load_recipe(probe_recipe(updater))))
    progress = engine.begin()
    before = vectors(progress.agent.learner.members)
    progress, _ = engine.advance(progress, 1)
    learner = progress.agent.learner
    after, cost = vectors(learner.members), np.asarray(learner.strategy.fitness[0])
    kept = [
        index
        for index, member in enumerate(after)
        if np.any(np.all(member == before, axis=1))
    ]
    assert kept == [*range(elite)]
    fittest = before[np.argsort(cost, kind="stable")[:elite]]
    np.testing.assert_array_equal(after[:elite], fittest)


def test_several_seeds_of_cma_es_learn_as_each_alone():
    """The eigenvectors are computed for one seed after the other."""
    pytest.importorskip("evosax")
    data = recipe.load_recipe(probe_recipe({"name": "cma_es", "deviation": 0.5}))
    run = loop.make_loop(build(data, (0, 1)))
    program = jax.jit(lambda progress: run.advance(progress, 1)).lower(
        jax.eval_shape(run.begin)
    )
    shapes = re.findall(r"lapack_ssyevd_ffi\(.*?tensor<([\dx]*)f32>", program.as_text())
    assert shapes
    assert all(shape.count("x") == 2 for shape in shapes)  # a matrix: "5x5x"
    members = {}
    for seeds in [(0, 1), (0,), (1,)]:
        engine = loop.make_loop(build(data, seeds))
        progress, _ = engine.advance(engine.begin(), 3)
        members[seeds] = jax.tree.leaves(progress.agent.learner.members)[0]
    for index in range(2):
        np.testing.assert_allclose(
            members[0, 1][index], members[index,][0], rtol=1e-3, atol=1e-3
        )


@pytest.mark.slow
def test_environment_i_explores_with_member_i_and_exploits_with_the_best():
    def act(params, obs, state, first, noise):
        return Decision(params["w"] + obs[:, 0], {"log_prob": noise}), state

    inner = Policy(
        initial=lambda batch: (jnp.zeros((batch, 2)), ()),
        draw=lambda key, batch: jax.random.uniform(key, (batch,)),
        explore=act,
        exploit=act,
        log_prob=lambda outputs, action: action,
    )
    policy = _population_policy(inner)
    params = {"members": {"w": jnp.arange(4.0) * 10}, "best": {"w": jnp.float32(7)}}
    for batch, expected in ((4, [0, 11, 22, 33]), (6, [0, 11, 22, 33, 4, 15])):
        noise = policy.draw(jax.random.key(0), batch)
        obs, first = jnp.arange(float(batch))[:, None], jnp.zeros(batch, bool)
        seen = (obs, policy.initial(batch), first, noise)
        explored, _ = policy.explore(params, *seen)
        np.testing.assert_allclose(explored.action, expected)
        exploited, _ = policy.exploit(params, *seen)
        np.testing.assert_allclose(exploited.action, 7 + np.arange(batch))


def test_non_finite_returns_stop_evolution(evolved_run):
    setup, early, progress, _ = evolved_run
    assert int(early.learner.failed[0]) == NOT_FAILED
    agent = setup.agent
    state = jax.tree.map(lambda leaf: leaf[0], progress.agent)
    steps = jax.tree.map(lambda leaf: leaf[0], progress.unroll)
    broken = steps._replace(reward=np.full_like(steps.reward, np.nan))
    clock = Clock.zero()._replace(iteration=jnp.int32(30))
    after, _ = jax.jit(agent.learn)(state, broken, clock, jax.random.key(0))
    assert int(after.learner.failed) == 30
    for old, new in zip(
        jax.tree.leaves(state.learner.members),
        jax.tree.leaves(after.learner.members),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)


@slow
def test_observations_are_normalized_by_statistics_of_all_generations():
    """Members act on normalized observations: argmax of θᵢ's outputs."""
    pytest.importorskip("evosax")
    data = probe_recipe({"name": "open_es", "deviation": 0.5})
    data["environment"] = {"name": "MountainCar-v0", "num_envs": MEMBERS}
    data["normalize"] = {"observation": True, "reward": True}
    setup = build(recipe.load_recipe(data))
    engine, agent = loop.make_loop(setup), setup.agent
    progress, seen = engine.begin(), []
    for _ in range(4):
        acting = jax.tree.map(lambda leaf: leaf[0], agent.acting(progress.agent))
        progress, log = engine.advance(progress, 1)
        rows = jax.tree.map(lambda leaf: np.asarray(leaf[0]), progress.unroll)
        before = np.concatenate(seen).astype(np.float64) if seen else np.zeros((1, 2))
        spread = np.sqrt(before.var(0) + 1e-8) if seen else 1.0
        scaled = np.clip((rows.obs - before.mean(0)) / spread, -10, 10)
        layer = acting.policy["members"]["policy"]["linear"]
        outputs = np.einsum("tpo,poa->tpa", scaled, layer["w"]) + layer["b"]
        best, second = np.sort(outputs, axis=-1)[..., -1:-3:-1].transpose(2, 0, 1)
        sure = best - second > 1e-3
        assert sure.mean() > 0.9
        np.testing.assert_array_equal(rows.action[sure], outputs.argmax(-1)[sure])
        seen.append(rows.obs.reshape(-1, 2))
    assert int(agent.failed_at(progress.agent)[0]) == NOT_FAILED
    assert np.isfinite(log.metrics["fitness"][:, 0]).all()
