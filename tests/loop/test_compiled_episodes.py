"""Compiled evaluation: the same episodes as the loop on the host plays."""

import functools

import jax
import numpy as np
import pytest
from policy_files import draw_acting

from rlcli import recipe, registry
from rlcli.assembly import build, build_environment
from rlcli.environments.adapters.host import to_host_environment
from rlcli.loop import compiled_episodes
from rlcli.loop import evaluator as evaluator_module
from rlcli.loop.evaluator import Evaluator

# Natively implemented environments that can be built without options.
NATIVE = [
    name
    for name in registry.names("environment")
    if name != "bsuite/MNISTBandit"
    and not name.endswith("/")  # a family of another library
    and not registry.find("environment", name).facts.get("adapter")
]


def play_both(data, seeds=(0, 5), episodes_per_env=2, devices=1, explore=True):
    """The results of the compiled program and of the loop on the host."""
    setup = build(recipe.load_recipe(data), seeds)._replace(devices=1)
    environment, agent = setup.environment, setup.agent
    acting = draw_acting(setup)
    host = to_host_environment(environment, len(seeds))
    results = []
    for env, count in ((environment, devices), (host, 1)):
        parts = env, agent.policy
        evaluator = Evaluator(
            lambda _, parts=parts: parts,
            seeds,
            episodes_per_env,
            explore=explore,
            devices=count,
        )
        results.append(evaluator.evaluate(acting, 3))
    return results


def film(data, is_host, seeds=(5,), episodes_per_env=2):
    """The steps and images of the compiled program, or of the loop on the host."""
    parsed = recipe.load_recipe(data)
    setup = build(parsed, seeds)
    environment = build_environment(parsed, len(seeds), rendering=True)
    if is_host:
        environment = to_host_environment(environment, len(seeds))
    parts = environment, setup.agent.policy
    evaluator = Evaluator(lambda _: parts, seeds, episodes_per_env, recording=True)
    return [*evaluator.frames(draw_acting(setup), 3)]


def assert_equal_films(compiled, host):
    assert len(compiled) == len(host)
    for (step, image), (host_step, host_image) in zip(compiled, host, strict=True):
        np.testing.assert_array_equal(image, host_image)
        for name in ("action", "reward", "running_return", "length"):
            expected = getattr(host_step, name)
            jax.tree.map(np.testing.assert_array_equal, getattr(step, name), expected)


def assert_equal_episodes(compiled, host):
    np.testing.assert_array_equal(compiled.lengths, host.lengths)
    np.testing.assert_allclose(compiled.returns, host.returns, rtol=1e-5, atol=1e-4)
    assert compiled.num_cut == host.num_cut


@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE)
def test_every_native_environment_plays_the_episodes_of_the_host_loop(name):
    env = {"name": name, "num_envs": 3, "time_limit": 40}
    data = {"environment": env, "policy": "random", "updater": "ppo"}
    assert_equal_episodes(*play_both(data))


FILMED = [  # details for images only, random levels, large states, several tasks
    "Blackjack-v1",
    "MiniGrid-DoorKey-16x16-v0",
    "MinAtar/Seaquest-v1",
    "bsuite/UmbrellaChain",
    "probe-needs-memory",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILMED)
def test_a_film_shows_the_images_of_the_host_loop(name):
    env = {"name": name, "num_envs": 1, "time_limit": 10}
    data = {"environment": env, "policy": "random", "updater": "ppo"}
    assert_equal_films(film(data, is_host=False), film(data, is_host=True))


CARTPOLE = {
    "environment": {"name": "CartPole-v1", "num_envs": 4},
    "network": {"name": "mlp", "layers": [8]},
    "policy": {"name": "epsilon_greedy", "epsilon": 0.5},
    "updater": "q_learning",
}


@pytest.mark.slow
@pytest.mark.parametrize("explore", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    ("seeds", "devices"),
    [pytest.param((0,), 1, marks=pytest.mark.slow), ((0, 1, 2), 2)],
)
def test_episodes_are_those_of_the_host_loop(seeds, devices, explore):
    compiled, host = play_both(CARTPOLE, seeds=seeds, devices=devices, explore=explore)
    np.testing.assert_array_equal(compiled.lengths, host.lengths)
    np.testing.assert_array_equal(compiled.returns, host.returns)


ENDLESS_CARTPOLE = {
    **CARTPOLE,
    "environment": {**CARTPOLE["environment"], "time_limit": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(0, 1, 2), (0,)])
def test_episodes_are_cut_as_in_the_host_loop(seeds, monkeypatch):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 15)
    compiled, host = play_both(ENDLESS_CARTPOLE, seeds=seeds, episodes_per_env=4)
    np.testing.assert_array_equal(compiled.lengths, host.lengths)
    np.testing.assert_array_equal(compiled.returns, host.returns)
    assert compiled.num_cut == host.num_cut
    # Others end before, so the episodes of the environments are out of phase.
    assert (
        0 < compiled.num_cut <= np.sum(compiled.lengths == 15) < compiled.lengths.size
    )


@pytest.mark.slow
def test_a_film_of_episodes_that_are_cut_is_that_of_the_host_loop(monkeypatch):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 7)
    compiled, host = (film(ENDLESS_CARTPOLE, is_host) for is_host in (False, True))
    lengths = [int(step.length[0, 0]) for step, _ in compiled if step.action is None]
    assert lengths == [7, 7]
    assert_equal_films(compiled, host)


@functools.cache
def cartpole_film(seeds):
    """The film of the loop on the host."""
    return film(CARTPOLE, is_host=True, seeds=seeds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "seeds"),
    [
        (("_RECORDED_STEPS", 512), (3, 4)),
        (("_RECORDED_STEPS", 7), (1,)),
        (("_RECORDED_BYTES", 200), (3, 4)),  # two steps
    ],
)
def test_a_film_shows_the_episodes_of_the_host_loop(limit, seeds, monkeypatch):
    host = cartpole_film(seeds)
    monkeypatch.setattr(compiled_episodes, *limit)
    compiled = film(CARTPOLE, is_host=False, seeds=seeds)
    ends = [step.action is None for step, _ in compiled]
    assert ends[-1] and sum(ends) >= 2  # of the first environment, until all are done
    assert_equal_films(compiled, host)


@pytest.mark.slow
def test_the_memory_of_a_recurrent_policy_resets_with_its_episode():
    data = {
        "environment": {"name": "bsuite/MemoryChain", "num_envs": 3},
        "network": {"name": "mlp", "layers": [8], "memory": {"name": "gru", "size": 4}},
        "updater": "ppo",
    }
    assert_equal_episodes(*play_both(data, episodes_per_env=3))


@pytest.mark.slow
def test_long_evaluations_continue_over_several_calls_of_the_program(monkeypatch):
    monkeypatch.setattr(compiled_episodes, "_FIRST_STEPS", 3)
    monkeypatch.setattr(compiled_episodes, "_TARGET", 0.0)  # every call is too slow
    calls = []
    run = compiled_episodes.CompiledEpisodes.run

    def count_calls(self, *arguments):
        program = self._advance

        def advance(*rest):
            calls.append(int(rest[-1]))
            return program(*rest)

        monkeypatch.setattr(self, "_advance", advance)
        return run(self, *arguments)

    monkeypatch.setattr(compiled_episodes.CompiledEpisodes, "run", count_calls)
    compiled, host = play_both(CARTPOLE, seeds=(0,))
    np.testing.assert_array_equal(compiled.returns, host.returns)
    assert calls == list(range(3, 3 * len(calls) + 1, 3))
    assert len(calls) > 3


def test_an_evaluation_is_traced_once_and_once_for_the_names_of_info(monkeypatch):
    setup = build(recipe.load_recipe(CARTPOLE), (0,))
    environment, agent = setup.environment, setup.agent
    acting = draw_acting(setup)
    traces = []

    def step(*arguments):
        traces.append(arguments)
        return environment.step(*arguments)

    parts = environment._replace(step=step), agent.policy
    evaluator = Evaluator(lambda _: parts, (0,), 1)
    evaluator.shapes(acting)
    evaluator.evaluate(acting)
    evaluator.evaluate(acting, 1)
    assert len(traces) == 2
