"""The inspection of a checkpoint, against the update that a resume makes.

A table of FrozenLake has parameters that are action values, so targets and gradients
are computed by hand.
"""

import json

import jax
import numpy as np
import pytest

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.episodes_env import make_episodes_env
from rlcli.evaluation.inspection.next_update import run_next_update
from rlcli.recipe import load_recipe
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.types import Clock

SMALL = {"name": "mlp", "layers": [4]}
TABLE = {
    "environment": {"name": "FrozenLakeNonSlippery-v0", "num_envs": 2},
    "network": "table",
    "updater": {"name": "q_learning", "loss": "mse"},
    "tracer": {"name": "n_step", "gamma": 0.5},
    "replay": {"name": "uniform", "capacity": 40, "batch_size": 8},
    "optimizer": {"name": "sgd", "learning_rate": 0.5},
    "train": {
        **{"steps": 60, "start": 8, "seeds": 2, "log": {"every": 2}},
        **{"checkpoint": {"every": 60}, "evaluate": {"every": None}},
    },
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "lake"
    return rlcli.train(TABLE, run=folder, quiet=True)


@pytest.fixture(scope="module")
def found(lake):
    return rlcli.inspect(lake, seed=1, episodes=2)


def arrays(found):
    return {each.name: each for each in found.batch}


@pytest.mark.slow
def test_the_target_and_the_gradient_of_a_table_are_those_computed_by_hand(lake):
    file = Run(lake).latest_checkpoint()
    assert file is not None
    update = run_next_update(file, 1, None)
    (record,) = update.gradient_steps
    (q,) = jax.tree.leaves(record.params)
    rows = update.batch
    fields = rows.obs, rows.action, rows.next_obs
    state, action, successor = (field.ravel() for field in fields)
    target = rows.reward.ravel() + rows.discount.ravel() * q[successor].max(axis=1)
    own = record.losses.inputs["target"].ravel()
    np.testing.assert_allclose(own, target, rtol=1e-6)
    gradient = np.zeros_like(q)
    error = q[state, action] - target
    # The loss `mse` is half the square.
    np.add.at(gradient, (state, action), error / len(state))
    (own,) = jax.tree.leaves(record.gradient)
    np.testing.assert_allclose(own, gradient, atol=1e-6)


@pytest.mark.slow
def test_it_is_the_update_with_which_a_resume_continues(lake, found, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    rlcli.resume(copy, set=["train.steps=62"], quiet=True, trust=True)
    rows = read_metrics(copy)
    row = next(row for row in rows if row["T"] == 62 and row["seed"] == 1)
    assert found.step == 60 and found.update == row["updates"] - 1
    assert found.losses[0].value == pytest.approx(row["loss"], rel=1e-5)
    assert found.layers[0].gradient == pytest.approx(row["gradient_norm"], rel=1e-5)
    assert arrays(found)["td_error"].mean == pytest.approx(row["td_error"], rel=1e-5)


@pytest.mark.slow
def test_nothing_is_written(lake):
    before = {path: path.stat().st_mtime_ns for path in lake.rglob("*")}
    rlcli.inspect(lake, episodes=0)
    assert {path: path.stat().st_mtime_ns for path in lake.rglob("*")} == before


def test_the_replay_and_the_fractions_of_actions_are_shown(found):
    assert found.replay.stored == 40 and found.replay.capacity == 40
    assert sum(each.batch for each in found.actions) == pytest.approx(1)
    assert sum(each.replay for each in found.actions) == pytest.approx(1)


def test_the_record_is_plain_data_a_text_of_80_columns_and_a_page(found):
    data = json.loads(json.dumps(found.as_dict()))
    assert data["updater"] == "q_learning" and data["seed"] == 1
    text = str(found)
    assert "batch, as the updater gets it" in text
    tables = [line for line in text.splitlines() if not line.startswith("sign:")]
    assert max(map(len, tables)) <= 80
    assert "<table>" in found._repr_html_()


def test_a_seed_or_a_step_that_is_not_there_is_refused(lake):
    with pytest.raises(RlcliError, match="no policy of seed 7"):
        rlcli.inspect(lake, seed=7)
    with pytest.raises(RlcliError, match="no checkpoint of step 3"):
        rlcli.inspect(lake, checkpoint=3)


@pytest.mark.slow
def test_a_report_has_the_next_update_as_a_section(lake, tmp_path):
    pytest.importorskip("vl_convert")
    page = rlcli.report(lake, output=tmp_path / "r.html", episodes=0, inspect=True)
    text = page.read_text()
    assert "batch, as the updater gets it" in text
    found = rlcli.inspect(lake, episodes=0)
    assert f"update {found.update + 1} of `q_learning`" in text


PENDULUM = {"name": "Pendulum-v1", "time_limit": 20}
OTHERS = {
    "sac": {"updater": "sac", "environment": PENDULUM},
    "ppo": {
        "updater": {"name": "ppo", "minibatches": 2, "epochs": 2},
        "normalize": {"observation": True, "reward": True},
        "environment": PENDULUM,
    },
    "recurrent": {
        "environment": "CartPole-v1",
        "updater": "dqn",
        "network": SMALL | {"memory": {"name": "gru", "size": 4}},
        "replay": {"name": "sequences", "length": 2, "burn_in": 1, "batch_size": 4},
        "train": {"unroll": 4},
    },
    "episodes": {
        "environment": {"name": "FrozenLake-v1", "time_limit": 9},
        "updater": "vanilla_pg",
        "replay": {"name": "episodes", "length": 9},
        "tracer": "monte_carlo",
    },
    "muzero": {"updater": "muzero", "environment": "CartPole-v1"},
    "host": {"updater": "dqn", "environment": "gymnasium/CartPole-v1"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OTHERS])
def test_every_kind_of_updater_is_inspected(name, tmp_path):
    if name == "muzero":
        pytest.importorskip("mctx")
    run = rlcli.train(
        {"network": SMALL, **OTHERS[name]}, run=tmp_path / "run", smoke=True, quiet=True
    )
    found = rlcli.inspect(run, episodes=1)
    assert found.gradient_steps > 0 and found.layers
    assert all(each.finite for each in found.batch)
    assert all(np.isfinite(each.gradient) for each in found.layers)
    assert {each.function for each in found.activations} or name == "recurrent"


@pytest.mark.slow
def test_a_checkpoint_has_the_critics_that_a_policy_file_lacks(tmp_path):
    recipe = {"network": SMALL, **OTHERS["sac"]}
    run = rlcli.train(recipe, run=tmp_path / "run", smoke=True, quiet=True)
    obs = rlcli.load(run).spaces.observation.sample()
    with pytest.raises(RlcliError, match="checkpoint=-1"):
        rlcli.load(run).value(obs)
    policy = rlcli.load(run, checkpoint=-1)
    low, high = (policy.action_value(obs, np.array([a], "f4")) for a in (-2, 2))
    assert np.isfinite([low, high]).all() and low != high
    values = policy.value(np.stack([obs, obs]))
    assert values.shape == (2,) and values[0] == values[1]


GAME = """
import gymnasium
import jax.numpy as jnp
from rlcli.types import Core, TimeStep, key_as_noise
def pair():
    box = gymnasium.spaces.Box(0.0, 9.0, (1,))
    def observe(time):
        return jnp.full((2, 1), time, jnp.float32)
    def reset(key):
        return jnp.int32(0), observe(0)
    def step(time, action, noise):
        over = time == 3
        obs, discount = observe(time + 1), jnp.full(2, ~over, jnp.float32)
        reward = action.astype(jnp.float32)
        return time + 1, TimeStep(obs, obs, reward, discount, over, {})
    action = gymnasium.spaces.Discrete(2)
    return Core(reset, step, box, action, draw=key_as_noise, agents=2)
"""


@pytest.fixture
def game(folder, fresh_imports):
    """A recipe of a game of two agents."""
    (folder / "own_game.py").write_text(GAME)
    return {
        "environment": {"name": "own_game:pair", "num_envs": 4},
        "network": SMALL,
        "updater": "ppo",
        "train": {"steps": 64, "unroll": 8, "evaluate": {"every": None}},
    }


def test_an_error_says_that_a_game_has_no_single_environment(game):
    with pytest.raises(RlcliError, match="it is a game of 2 agents") as caught:
        make_episodes_env(load_recipe(game), Clock.zero(), 0)
    assert "library" not in str(caught.value)


@pytest.mark.slow
def test_a_game_is_inspected_without_its_values(game):
    found = rlcli.inspect(rlcli.train(game, run="run", quiet=True), episodes=2)
    assert found.value is None and found.losses
    assert any("game of 2 agents" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_batch_without_a_row_has_no_action(tmp_path):
    """The first unroll of one step, where targets span three."""
    recipe = {
        "environment": "FrozenLake-v1",
        "network": "table",
        "updater": "q_learning",
        "tracer": {"name": "n_step", "n": 3},
        "train": {"steps": 8, "checkpoint": {"every": 1, "keep": 8}, "evaluate": None},
    }
    run = rlcli.train(recipe, run=tmp_path / "run", quiet=True)
    found = rlcli.inspect(run, checkpoint=1, episodes=0)
    assert [each.batch for each in found.actions] == [0.0] * 4
    assert any("every weight of the batch is 0" in sign for sign in found.signs)
    assert sum(each.batch for each in rlcli.inspect(run, episodes=0).actions) == 1
