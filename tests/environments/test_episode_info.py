"""What episodes log of an environment's `info`, against values worked out by hand."""

import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcli
from rlcli.assembly import build_environment
from rlcli.environments.adapters.jax_core import pure_core
from rlcli.environments.adapters.pools import HostTimeStep, NativeVector, info_numbers
from rlcli.environments.episode_info import log_info
from rlcli.environments.vector import vector
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.registry import user_code
from rlcli.runs.statistics import info_summary, wilson_interval

# An episode of three steps: energy 1, 2, 3; the step that ends it reports a success
# where the last action was 1, and nothing else reports one.
MODULE = """
import gymnasium
import numpy as np

class Reach(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {"energy": 100.0}

    def step(self, action):
        self.time += 1
        info = {"energy": float(self.time), "picture": np.zeros((4, 4)), "word": "a",
                "episode": {"r": self.time}}
        if self.time == 3:
            info["success"] = bool(action)
        obs = np.full(1, self.time, np.float32)
        return obs, float(action), False, self.time == 3, info
"""
RULES = {"success": "last", "energy": "sum", "episode.r": "last", "absent": "sum"}


def recipe_data(vectorization):
    environment = {"name": "reaching:Reach", "num_envs": 2, "info": RULES}
    evaluate = {"every": 30, "episodes": 4}
    return {
        "environment": environment | {"vectorization": vectorization},
        "network": {"name": "mlp", "layers": [4]},
        "updater": "reinforce",
        "train": {
            **{"steps": 60, "unroll": 6},
            **{"log": {"every": 30}, "evaluate": evaluate},
        },
    }


@pytest.fixture
def reaching(tmp_path, fresh_imports):
    (tmp_path / "reaching.py").write_text(MODULE)
    user_code.search_first(tmp_path)
    return tmp_path


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_host_environment_reports_the_last_success_and_the_sum_of_energy(
    reaching, vectorization
):
    recipe = load_recipe(recipe_data(vectorization))
    env = build_environment(recipe, 1)
    assert env.host.info == tuple(sorted(RULES))
    state, _ = env.reset(np.zeros(1, np.uint32))
    totals = dict.fromkeys(RULES, 0)
    for _ in range(3):
        state, timestep = env.step(state, jnp.array([[1, 0]]))
        totals = {name: totals[name] + timestep.info[name] for name in RULES}
    env.host.close(state)
    expected = {
        "success": [[1, 0]],
        "energy": [[6, 6]],
        "episode.r": [[3, 3]],
        "absent": [[0, 0]],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(totals[name], values, name)


def test_a_truncation_by_the_caller_ends_an_episode_as_well(reaching):
    env = build_environment(load_recipe(recipe_data("sync")), 1)
    state, _ = env.reset(np.zeros(1, np.uint32))
    _, timestep = env.step(state, jnp.array([[1, 0]]), (), np.array([[True, False]]))
    np.testing.assert_array_equal(timestep.info["episode.r"], [[1, 0]])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_vector_of_gymnasium_reports_the_end_before_its_reset(reaching, mode):
    module = user_code.import_module("reaching")

    vectors = NativeVector(
        lambda: SyncVectorEnv([module.Reach] * 2, autoreset_mode=mode), 1
    )
    vectors.begin(np.arange(2), [0, 1])
    for time in range(1, 4):
        timestep = vectors.step(np.array([1, 0]))
        numbers = info_numbers(timestep, "energy", 2)
        np.testing.assert_array_equal(numbers, [time, time])
    np.testing.assert_array_equal(info_numbers(timestep, "success", 2), [1, 0])
    vectors.close()


def test_what_is_no_single_number_counts_as_missing():
    info = [{"a": np.zeros(3)}, {"a": "text"}, {"a": np.float64(2)}, {"a": True}]
    timestep = HostTimeStep((), [], [], [], info)
    np.testing.assert_array_equal(info_numbers(timestep, "a", 4), [0, 0, 2, 1])
    np.testing.assert_array_equal(info_numbers(timestep, "b.c", 4), np.zeros(4))


def pure(rules):
    def step(time, action, key):
        time += 1
        metrics = {
            "won": time == 3,
            "my_success": time,
            "cost": time,
            "skip": time[None],
        }
        return time, time, 1.0, False, time == 3, metrics

    space = gymnasium.spaces.Box(-9, 9, (), np.float32)
    core = pure_core(
        lambda key: (jnp.float32(0), jnp.float32(0)),
        step,
        space,
        gymnasium.spaces.Discrete(2),
    )
    return log_info(vector(lambda values: core, 2), rules, "environment `mine`")


@pytest.mark.parametrize(
    ("rules", "cost"), [({}, 6), ({"cost": "last"}, 3), ({"cost": "sum"}, 6)]
)
def test_a_compiled_library_logs_booleans_and_successes_at_the_end(rules, cost):
    env = pure(rules)
    state, _ = env.reset(jax.random.key(0))
    totals = {"won": 0, "my_success": 0, "cost": 0}
    for _ in range(3):
        noise = env.draw(jax.random.key(1))
        state, timestep = env.step(state, jnp.zeros(2, int), noise)
        assert timestep.info.keys() == totals.keys()
        totals = {name: totals[name] + timestep.info[name] for name in totals}
    for name, value in {"won": 1, "my_success": 3, "cost": cost}.items():
        np.testing.assert_array_equal(totals[name], [value, value])


def test_a_name_that_a_compiled_environment_does_not_report_is_refused():
    env = pure({"succes": "last"})
    with pytest.raises(RlcliError, match="has no `info` named `succes`") as error:
        state, _ = env.reset(jax.random.key(0))
        env.step(state, jnp.zeros(2, int), env.draw(jax.random.key(1)))
    assert error.value.hint == "it reports `cost`, `my_success`, `won`"


def test_the_rate_of_successes_has_the_interval_of_wilson():
    # The interval for 8 of 10, as in (Agresti and Coull, 1998).
    np.testing.assert_allclose(wilson_interval(0.8, 10), (0.4902, 0.9433), atol=1e-4)
    summary = info_summary({"success": np.array([[1.0, 0.0], [1.0, 1.0]])})
    assert summary["success"]["mean"] == 0.75
    assert summary["success"]["ci95"] == list(wilson_interval(0.75, 4))
    assert info_summary({"energy": np.array([2.5])})["energy"]["ci95"] is None


def test_rows_evaluations_and_eval_have_the_logged_numbers(reaching):
    folder = rlcli.train(
        recipe_data("sync"), run=reaching / "run", quiet=True, trust=True
    )
    lines = next(folder.rglob("metrics.jsonl")).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    training = [row for row in rows if "G" in row]
    assert training
    assert all(row["energy"] == 6 and row["absent"] == 0 for row in training)
    assert all(0 <= row["success"] <= 1 for row in training)
    evaluations = [row["evaluation"] for row in rows if "evaluation" in row]
    assert len(evaluations) == 2
    assert all(each["energy"] == 6 and each["episode.r"] == 3 for each in evaluations)
    result = rlcli.eval(folder, episodes=4, trust=True)
    assert result["info"]["energy"]["mean"] == 6
    assert result["info"]["success"]["mean"] in (0, 0.25, 0.5, 0.75, 1)
    assert result["seeds"][0]["info"].keys() == RULES.keys()
