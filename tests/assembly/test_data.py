"""Data sets of replays: how recipes find them, what is refused, what learning reads."""

import os

import jax
import numpy as np
import pytest
from data_sets import bandit_data, random_data, write_data
from policy_files import write_policy
from wording import mentions

import rlcli
from rlcli import loop
from rlcli.assembly import build, record_data
from rlcli.errors import RlcliError
from rlcli.loop.agents import _add_dataset
from rlcli.recipe import load_recipe, resolve
from rlcli.replays.datasets.names import HASH, shipped_folder
from rlcli.replays.uniform import uniform
from rlcli.training.experiment.program import Program
from rlcli.types import Transition

PROBE = {
    "environment": "probe-reward-depends-on-action",
    "updater": "q_learning",
    "network": "linear",
    "train": {"steps": 64},
}


def offline(file, **more):
    replay = {"name": "dataset", "path": str(file), "batch_size": 16}
    return load_recipe({**PROBE, "replay": replay, **more})


@pytest.fixture
def file(tmp_path):
    return write_data(tmp_path / "data.npz", bandit_data(0.5))


def refusal(recipe):
    with pytest.raises(RlcliError) as caught:
        Program(recipe, build(recipe)).check()
    return caught.value


def test_a_path_is_relative_to_the_file_of_the_recipe(tmp_path, file, monkeypatch):
    (tmp_path / "recipes").mkdir()
    mine = tmp_path / "recipes" / "mine.yaml"
    text = "environment: CartPole-v1\nupdater: iql\nreplay: {path: ../data.npz}\n"
    mine.write_text(text, encoding="utf-8")
    (tmp_path / "recipes" / "other.yaml").write_text("extends: mine.yaml\n")
    monkeypatch.chdir(tmp_path)
    for path in (mine, "recipes/other.yaml"):
        found = load_recipe(path).replay.options["path"]
        assert os.path.isabs(found)
        assert os.path.samefile(found, file)
    found = load_recipe(mine, ["replay.path=data.npz"]).replay.options["path"]
    assert os.path.samefile(found, file)


def test_shipped_data_keep_a_path_that_does_not_depend_on_the_installation():
    shipped = min((shipped_folder() / "data").glob("*.npz"))
    data = {**PROBE, "replay": {"name": "dataset", "path": f"data/{shipped.name}"}}
    assert load_recipe(data).replay.options["path"] == f"data/{shipped.name}"
    data["replay"]["path"] = str(shipped)
    assert load_recipe(data).replay.options["path"] == f"data/{shipped.name}"


def test_a_hash_without_digits_is_the_hash_of_no_data(file):
    replay = {"name": "dataset", "path": f"{file}{HASH}"}
    error = refusal(load_recipe(resolve(offline(file)) | {"replay": replay}))
    assert error.message.endswith("but the recipe names ``")


@pytest.mark.slow
def test_the_recipe_of_a_run_names_the_content_of_its_data(file):
    recorded = record_data(offline(file))
    assert recorded.replay.options["path"].startswith(f"{file}{HASH}")
    assert record_data(recorded) == recorded == load_recipe(resolve(recorded))
    Program(recorded, build(recorded)).check()
    write_data(file, bandit_data(0.4))
    assert "has changed: its SHA-256 is" in refusal(recorded).message
    Program(offline(file), build(offline(file))).check()


def test_data_of_other_spaces_are_refused_with_the_line_of_the_recipe(tmp_path):
    write_data(tmp_path / "data.npz", random_data())
    mine = tmp_path / "mine.yaml"
    text = "environment: Pendulum-v1\nupdater: iql\nreplay: {path: data.npz}\n"
    mine.write_text(text, encoding="utf-8")
    message = refusal(load_recipe(mine)).message
    assert message.startswith(f"{mine}:3: data set")
    assert "`observations` holds float32[4], expected Box(3,)" in message


def test_a_missing_file_says_what_writes_one(tmp_path):
    error = refusal(offline(tmp_path / "missing.npz"))
    assert f"there is no data set `{tmp_path / 'missing.npz'}`" in error.message
    assert "rlcli collect" in error.hint


@pytest.mark.parametrize("more", [{}, {"path": "a.npz", "minari": "a/b-v0"}])
def test_a_data_set_has_one_source(more):
    data = {**PROBE, "replay": {"name": "dataset", **more}}
    with pytest.raises(RlcliError, match="needs either `path` or `minari`"):
        build(load_recipe(data))


def test_parts_that_need_extras_are_refused(file):
    with pytest.raises(RlcliError, match="`retrace` needs the `log_prob` of each step"):
        build(offline(file, tracer={"name": "retrace"}))
    memory = {"name": "linear", "memory": "gru"}
    with pytest.raises(RlcliError, match="needs the `carry` of each step"):
        build(offline(file, network=memory))


def test_the_environment_of_an_offline_run_is_idle_and_compiled(tmp_path):
    write_data(tmp_path / "data.npz", random_data())
    data = {"environment": "gymnasium/CartPole-v1", "updater": "iql"}
    data["replay"] = {"path": str(tmp_path / "data.npz")}
    environment = build(load_recipe(data)).environment
    assert environment.pure
    state, obs = environment.reset(jax.random.key(0))
    _, timestep = environment.step(state, np.zeros(1, "i4"), ())
    assert obs.shape == timestep.next_obs.shape == (1, 4)
    assert not timestep.last[0]
    assert timestep.discount[0] == 1


def test_the_first_update_is_made_in_the_first_step(file):
    setup = build(offline(file, tracer={"name": "n_step", "n": 3}))
    assert setup.agent.count_updates(64) == 64


def test_the_estimate_of_memory_includes_the_data(file):
    recipe = offline(file)
    program = Program(recipe, build(recipe))
    program.check()
    sizes = {item.name: item.size for item in program.memory}
    assert sizes["data set"] == 600 * (2 * 4 + 4 + 4 + 4 + 1 + 1)
    assert "replay" not in sizes


def test_a_policy_acts_without_the_data_that_it_was_trained_on(tmp_path, file):
    recipe = record_data(offline(file))
    policy = write_policy(tmp_path, resolve(recipe))
    file.unlink()
    action, _ = rlcli.load(policy).act(np.zeros(1, "f4"))
    assert action in (0, 1)


@pytest.mark.slow
def test_statistics_of_observations_are_those_of_the_data(tmp_path):
    data = random_data()
    write_data(tmp_path / "data.npz", data)
    recipe = load_recipe(
        {
            "environment": "CartPole-v1",
            "updater": "q_learning",
            "network": "linear",
            "replay": {"name": "dataset", "path": str(tmp_path / "data.npz")},
            "normalize": {"observation": True},
            "train": {"steps": 64},
        }
    )
    engine = loop.make_loop(build(recipe))
    progress, _ = engine.advance(engine.begin(), 3)
    moments = progress.agent.learner.statistics.observation
    (obs,) = data.observations.values()
    np.testing.assert_allclose(moments.mean[0][0], obs.mean(0), atol=1e-6)
    np.testing.assert_allclose(moments.variance[0][0], obs.var(0), rtol=1e-5)
    assert int(moments.count[0]) == len(obs)


def test_data_that_do_not_fit_into_a_replay_are_refused(file):
    replay = {"name": "uniform", "capacity": 500, "prefill": str(file)}
    error = refusal(load_recipe({**PROBE, "replay": replay}))
    assert mentions(error.message, "600 steps", "only 500")
    assert mentions(error.hint, "`replay.capacity`", "600")


@pytest.mark.slow
def test_a_replay_starts_with_the_steps_of_its_data(file):
    replay = {"name": "uniform", "prefill": str(file), "batch_size": 64}
    recipe = load_recipe({**PROBE, "replay": replay, "policy": "random"})
    engine = loop.make_loop(build(recipe))
    progress, _ = engine.advance(engine.begin(), 10)
    ring = progress.agent.replay
    packed = jax.tree.map(lambda x: x[0], jax.device_get(ring.packed))
    rows = jax.device_get(jax.jit(jax.vmap(ring.packing.unpack))(packed))
    data = bandit_data(0.5)
    np.testing.assert_array_equal(rows.action[:600], data.actions[""])
    np.testing.assert_array_equal(rows.reward[:600], data.rewards)
    rewards = np.abs(rows.reward)  # of 10 more steps, the last of them stored twice
    assert np.sum(rewards == 1) in (610, 611)
    assert np.all(rewards[:610] == 1)


def test_each_environment_gets_consecutive_steps_that_end_an_episode():
    steps, unroll, num_envs = 47, 2, 3
    number = np.arange(steps, dtype="f4")
    data = Transition(
        obs=number,
        action=number,
        reward=number,
        discount=np.ones(steps, "f4"),
        next_obs=number + 1,
        first=np.zeros(steps, bool),
        last=np.zeros(steps, bool),
        extras={},
    )
    shape = (unroll, num_envs)
    example = jax.tree.map(lambda leaf: np.zeros(shape, leaf.dtype), data)
    replay = uniform(1, unroll, num_envs, capacity=60, batch_size=5_000)

    @jax.jit
    def fill_and_sample(data):
        state = _add_dataset(replay, replay.init(example), data=data, steps=example)
        bits = replay.draw(jax.random.key(0))
        return replay.sample(state, np.int32(7), bits)[0]

    rows = jax.tree.map(lambda x: x[0], jax.device_get(fill_and_sample(data)))
    assert {*rows.reward} == {*range(42)}  # 7 unrolls of 6 steps
    np.testing.assert_array_equal(rows.first, rows.reward % 14 == 0)
    np.testing.assert_array_equal(rows.last, rows.reward % 14 == 13)
