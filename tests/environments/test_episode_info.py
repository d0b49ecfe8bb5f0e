"""What episodes log of an environment's `info`, against values worked out by hand."""

import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tiers import quick_first

import rlcli
from rlcli.assembly import build_environment
from rlcli.environments.adapters.info_recorder import InfoRecorder
from rlcli.environments.adapters.jax_libraries import pure_core
from rlcli.environments.adapters.pools import NativeVector
from rlcli.environments.episode_info import MAX_INFO, log_info
from rlcli.environments.vector import vector
from rlcli.errors import RlcliError
from rlcli.loop.advance import info_names
from rlcli.loop.episode_statistics import begin_statistics, update_statistics
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
                "episode": {"r": self.time}, "goal": None, "t": self.time,
                "is_far": np.bool_(self.time < 3), "speed": np.float32(self.time)}
        if self.time == 3:
            info["success"] = bool(action)
        obs = np.full(1, self.time, np.float32)
        return obs, float(action), False, self.time == 3, info
"""
RULES = {
    **{"success": "last", "energy": "sum", "speed": "mean"},
    **{"episode.r": "last", "absent": "sum"},
}
# What episodes with the actions 1 and 0 log, with `RULES` and without.
EXPECTED = {
    **{"success": [[1, 0]], "energy": [[6, 6]], "speed": [[2, 2]]},
    **{"episode.r": [[3, 3]], "absent": [[0, 0]]},
}
DEFAULT = {
    **{"success": [[1, 0]], "energy": [[6, 6]], "speed": [[6, 6]]},
    "is_far": [[0, 0]],
}


def recipe_data(vectorization, rules=RULES):
    environment = {"name": "reaching:Reach", "num_envs": 2, "info": rules}
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


@pytest.mark.parametrize(("rules", "expected"), [(RULES, EXPECTED), ({}, DEFAULT)])
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_host_environment_logs_where_episodes_end(
    reaching, vectorization, rules, expected
):
    env = build_environment(load_recipe(recipe_data(vectorization, rules)), 1)
    state, _ = env.reset(np.zeros(1, np.uint32))
    for _ in range(3):
        state, timestep = env.step(state, jnp.array([[1, 0]]))
        assert bool(timestep.info) == timestep.last.all()
    statistics = env.host.info(state)
    env.host.close(state)
    assert timestep.info.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(timestep.info[name], values, name)
        assert statistics.last[name] == np.mean(values)
        assert statistics.total[name] == np.sum(values)
        assert statistics.max[name] == np.max(values)


def test_a_truncation_by_the_caller_ends_an_episode_as_well(reaching):
    env = build_environment(load_recipe(recipe_data("sync")), 1)
    state, _ = env.reset(np.zeros(1, np.uint32))
    _, timestep = env.step(state, jnp.array([[1, 0]]), (), np.array([[True, False]]))
    np.testing.assert_array_equal(timestep.info["episode.r"], [[1, 0]])


def test_a_restored_environment_goes_on_with_what_its_episodes_have_reported(reaching):
    env = build_environment(load_recipe(recipe_data("sync", {})), 1)
    state, _ = env.reset(np.zeros(1, np.uint32))
    for _ in range(5):  # an episode, and two steps
        state, _ = env.step(state, jnp.array([[1, 0]]))
    saved = env.host.save(state)
    restored, warning = env.host.restore(saved)
    assert not warning
    jax.tree.map(np.testing.assert_array_equal, env.host.save(restored), saved)
    ends = []
    for each in (state, restored):
        _, timestep = env.step(each, jnp.array([[0, 1]]))
        ends.append((timestep.info, env.host.info(each)))
        env.host.close(each)
    jax.tree.map(np.testing.assert_array_equal, *ends)
    assert ends[1][0]["energy"].tolist() == [[6, 6]]
    assert ends[1][1].total["energy"] == 24


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_vector_of_gymnasium_reports_the_end_before_its_reset(reaching, mode):
    module = user_code.import_module("reaching")

    vectors = NativeVector(
        lambda: SyncVectorEnv([module.Reach] * 2, autoreset_mode=mode), 1
    )
    vectors.begin(np.arange(2), [0, 1])
    recorder = InfoRecorder({}, (1, 2), "environment `reach`")
    for _ in range(3):
        recorder.record(vectors.step(np.array([1, 0])).info)
    vectors.close()
    logged = recorder.finish(np.arange(2), np.full(2, 3))
    assert logged.keys() == DEFAULT.keys()
    for name, values in DEFAULT.items():
        np.testing.assert_array_equal(logged[name], values, name)


def log_episode(recorder, *infos):
    for info in infos:
        recorder.record([info])
    logged = recorder.finish(np.arange(1), np.array([len(infos)]))
    return {name: values.item() for name, values in logged.items()}


def test_what_is_missing_or_no_number_counts_as_zero():
    recorder = InfoRecorder({}, (1, 1), "environment `mine`")
    first = {"a": 1, "b": None, "c": "text", "d": np.zeros(2), "_e": 1, 7: 1}
    steps = first, {"a": 2.5}, {}, {"a": "text"}, {"a": None, "b": np.ones(1)}
    assert log_episode(recorder, *steps) == {"a": 3.5, "b": 1}
    assert log_episode(recorder, {"a": True}, None) == {"a": 1, "b": 0}
    assert log_episode(recorder, {"won": True}, {"won": False}, {}) == {
        **{"a": 0, "b": 0, "won": 0},
    }
    statistics = recorder.statistics()
    assert {name: each.item() for name, each in statistics.max.items()} == {
        **{"a": 3.5, "b": 1, "won": 0},
    }


def test_long_episodes_are_summed_like_short_ones():
    recorder = InfoRecorder({}, (1, 1), "environment `mine`")
    steps = [{"a": float(time), "success": time} for time in range(1_000)]
    assert log_episode(recorder, *steps) == {"a": 499_500, "success": 999}


def test_a_rule_may_name_a_key_with_a_dot_and_no_array():
    recorder = InfoRecorder({"x.y": "sum", "z.w": "last"}, (1, 1), "environment `mine`")
    assert log_episode(recorder, {"x.y": 1, "z": {"w": 2}}) == {"x.y": 1, "z.w": 2}
    message = "`x.y` in the `info` of environment `mine` is an array \\[3\\]"
    with pytest.raises(RlcliError, match=message):
        recorder.record([{"x.y": np.zeros(3)}])
    with pytest.raises(RlcliError, match="is str, not a number"):
        InfoRecorder({"w": "last"}, (1, 1), "it").record([{"w": "text"}])


def test_the_first_episode_says_which_names_of_the_rules_it_has_not_reported():
    recorder = InfoRecorder({"succes": "last"}, (1, 1), "environment `mine`")
    assert log_episode(recorder, {"success": True, "energy": 1.0}) == {"succes": 0}
    (message,) = recorder.statistics().messages
    assert "no `succes` in `info`, only `energy`, `success`" in message
    assert "did you mean `success`?" in message
    log_episode(recorder, {"success": True, "energy": 1.0})
    assert len(recorder.statistics().messages) == 1


def test_without_rules_the_number_of_names_is_bounded():
    recorder = InfoRecorder({}, (1, 1), "environment `mine`")
    info = {f"n{index:03}": index for index in range(MAX_INFO + 5)}
    assert [*log_episode(recorder, info)] == sorted(info)[:MAX_INFO]
    (message,) = recorder.statistics().messages
    assert f"`n{MAX_INFO:03}` and others are not logged" in message


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
    ("rules", "expected"),
    quick_first(
        [
            ({"cost": "sum", "won": "mean"}, {"cost": 6, "won": 1 / 3}),
            ({}, {"won": 1, "my_success": 3, "cost": 6}),
            ({"cost": "last"}, {"cost": 3}),
            ({"cost": "mean"}, {"cost": 2}),
        ],
        quick=2,
    ),
)
def test_a_compiled_library_logs_booleans_and_successes_at_the_end(rules, expected):
    env = pure(rules)
    state, _ = env.reset(jax.random.key(0))
    statistics = begin_statistics(2, info_names(env, state))
    for _ in range(3):
        noise = env.draw(jax.random.key(1))
        state, timestep = env.step(state, jnp.zeros(2, int), noise)
        statistics = update_statistics(statistics, timestep, env.info)
    assert statistics.last_info.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(statistics.last_info[name], value)
        np.testing.assert_allclose(statistics.total_info[name], 2 * value)


def test_a_name_that_a_compiled_environment_does_not_report_is_refused():
    env = pure({"succes": "last"})
    with pytest.raises(RlcliError, match="has no `info` named `succes`") as error:
        state, _ = env.reset(jax.random.key(0))
        info_names(env, state)
    assert error.value.hint == "it reports `cost`, `my_success`, `won`"


def test_the_rate_of_successes_has_the_interval_of_wilson():
    # The interval for 8 of 10, as in (Agresti and Coull, 1998).
    np.testing.assert_allclose(wilson_interval(0.8, 10), (0.4902, 0.9433), atol=1e-4)
    summary = info_summary({"success": np.array([[1.0, 0.0], [1.0, 1.0]])})
    assert summary["success"]["mean"] == 0.75
    assert summary["success"]["ci95"] == list(wilson_interval(0.75, 4))
    assert info_summary({"energy": np.array([2.5])})["energy"]["ci95"] is None


@pytest.mark.slow
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
