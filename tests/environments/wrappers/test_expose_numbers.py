"""The numbers of an environment, which only critics see."""

import jax
import numpy as np
import pytest
from gymnasium import spaces
from wording import mentions

import rlcli
from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError

EACH = {"mass": {"uniform": [0.5, 2.0]}, "g": {"choice": [5.0, 10.0]}}
PENDULUM = {"name": "Pendulum-v1", "num_envs": 3, "time_limit": 4, "each": EACH}
PENDULUM["wrappers"] = ["expose_numbers"]
POLICY = {
    "name": "mlp",
    "layers": [8],
    "preprocess": [{"name": "member", "of": "observation"}],
}
CRITIC = {"name": "mlp", "layers": [8]}
UPDATERS = {
    "ppo": {"network": {"policy": POLICY, "value": CRITIC}, "train": {"unroll": 4}},
    "sac": {"network": {"policy": POLICY, "critic": CRITIC}, "train": {"unroll": 4}},
    "td3": {"network": {"policy": POLICY, "critic": CRITIC}, "train": {"unroll": 4}},
}


def test_the_member_has_the_numbers_of_the_episode_by_name():
    env = rlcli.make(
        "Pendulum-v1", num_envs=3, time_limit=4, each=EACH, wrappers=["expose_numbers"]
    )
    assert isinstance(env.observation, spaces.Dict)
    assert env.observation["privileged"].shape == (2,)
    state, obs = jax.jit(env.reset)(jax.random.key(1))
    seen = set()
    for index in range(9):
        numbers = env.parameters(state)
        expected = np.stack([numbers["g"], numbers["mass"]], axis=1)
        np.testing.assert_array_equal(obs["privileged"], expected)
        seen |= {tuple(row) for row in expected.tolist()}
        noise = env.draw(jax.random.fold_in(jax.random.key(2), index))
        state, step = jax.jit(env.step)(state, np.zeros((3, 1), np.float32), noise)
        # The last observation is of the old episode, the first one of the new.
        if index % 4 == 3:
            np.testing.assert_array_equal(step.next_obs["privileged"], expected)
            assert not np.array_equal(step.obs["privileged"], expected)
        obs = step.obs
    assert len(seen) == 9


@pytest.mark.parametrize("wrappers", [["expose_numbers"]])
def test_without_numbers_that_differ_it_is_refused(wrappers):
    with pytest.raises(RlcliError) as error:
        rlcli.make("Pendulum-v1", wrappers=wrappers)
    assert mentions(str(error.value), "`expose_numbers`", "each")


def test_a_grid_of_evaluations_has_no_number_that_training_has_not():
    data = {"environment": PENDULUM, "updater": "ppo"}
    for number, other in [("g", {}), ("length", {"length": [2.0]})]:
        grid = {"evaluate": {"every": 64, "grid": {number: [5.0, 10.0]}}}
        recipe.load_recipe(
            {
                **data,
                "environment": {**PENDULUM, "each": {**EACH, **other}},
                "train": {"steps": 640, **grid},
            }
        )
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe({**data, "train": {"steps": 640, **grid}})
    words = "`expose_numbers`", "`length` in evaluations only", "to `each`"
    assert mentions(str(error.value), *words)


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATERS)
def test_a_policy_reads_and_needs_nothing_that_only_the_critic_sees(name, tmp_path):
    data = {"environment": PENDULUM, "updater": name, **UPDATERS[name]}
    data["train"] = {**data["train"], "steps": 48, "evaluate": None}
    run = rlcli.train(data, run=tmp_path / "run", quiet=True)
    policy = rlcli.load(run)
    obs = np.array([[0.5, 0.1, 0.2], [1.0, 0.0, -3.0]], np.float32)
    numbers = np.array([[5.0, 1.0], [10.0, 2.0]], np.float32)
    whole, _ = policy.act({"observation": obs, "privileged": numbers})
    alone, _ = policy.act({"observation": obs})
    np.testing.assert_array_equal(whole, alone)
    single, _ = policy.act({"observation": obs[0]})
    np.testing.assert_allclose(single, whole[0], rtol=1e-6)
    with pytest.raises(RlcliError, match="observation"):
        policy.act({"privileged": numbers})
    exported = rlcli.export(run, format="numpy", output=tmp_path / "policy.py")
    assert [each["name"] for each in exported["inputs"]] == ["observation.observation"]
    assert np.isfinite(rlcli.eval(run, episodes=3)["return"]["mean"])


def test_the_critic_reads_the_numbers():
    data = {"environment": PENDULUM, "updater": "sac", **UPDATERS["sac"]}
    setup = build(recipe.load_recipe(data))
    shapes = loop.make_loop(setup).shapes().agent.learner.params
    assert shapes["policy"]["linear"]["w"].shape[1:] == (3, 8)
    first = next(iter(shapes["critic"].values()))["w"].shape
    assert first[-2] == 3 + 2 + 1
