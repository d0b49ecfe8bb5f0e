"""The training loops of one's own that `docs/python.md` shows."""

import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import rlcli

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_loop.py"


@pytest.fixture(scope="module")
def own_loop():
    """The example as a module, imported once: what it compiles serves all seeds."""
    specification = importlib.util.spec_from_file_location("own_loop", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def greedy_episode(env, q, params):
    """Return and length, played by NumPy's argmax over what `q` says."""
    (s, _), total, length, over = env.reset(), 0, 0, False
    while not over:
        s, r, terminated, truncated, _ = env.step(int(np.argmax(q(params, s))))
        total, length, over = total + r, length + 1, terminated or truncated
    return total, length


def test_the_example_has_at_most_forty_lines_of_code():
    lines = EXAMPLE.read_text().splitlines()[1:]  # the first is its docstring
    code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_after_500_episodes_the_goal_is_reached_on_the_shortest_way(own_loop, seed):
    params = own_loop.train(seed)
    assert greedy_episode(own_loop.env, own_loop.q, params) == (1, 6)


def test_an_epsilon_of_each_episode_is_compiled_once(own_loop):
    own_loop.train(0, episodes=3)
    assert own_loop.act._cache_size() == own_loop.learn._cache_size() == 1


def test_the_monitor_counts_the_episodes_and_reports_the_losses(own_loop, capsys):
    own_loop.train(0, episodes=2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("[TrainMonitor|INFO] ep: 1, T: ")
    assert second.startswith("[TrainMonitor|INFO] ep: 2, T: ")
    assert "td_error: " in second


@pytest.fixture(scope="module")
def left_at(tmp_path_factory):
    """The chunks with rows of a run whose loop is left at the second of them."""
    recipe = {
        "environment": {"name": "FrozenLakeNonSlippery-v0", "num_envs": 4},
        "network": "table",
        "updater": "q_learning",
        "train": {"steps": 4_000, "seeds": 2, "log": {"every": 1_000}},
    }
    seen = []
    folder = tmp_path_factory.mktemp("left") / "run"
    for chunk in rlcli.chunks(recipe, run=folder, quiet=True):
        seen += [chunk] if chunk.rows else []
        if len(seen) == 2:
            break
    return seen


def test_a_hook_sees_rows_and_parameters_of_every_seed(left_at):
    assert [chunk.step for chunk in left_at] == [1_000, 2_000]
    assert [[row["seed"] for row in chunk.rows] for chunk in left_at] == [[0, 1]] * 2
    shapes = jax.tree.map(np.shape, left_at[-1].acting)
    assert jax.tree.leaves(shapes, is_leaf=lambda x: isinstance(x, tuple)) == [
        (2, 16, 4)
    ]


@pytest.mark.slow
def test_a_run_is_saved_when_its_caller_leaves_and_can_be_resumed(left_at):
    folder = left_at[-1].run
    info = json.loads((folder / "run.json").read_text())
    assert (info["status"], info["reason"]) == (
        "stopped",
        "by the caller of `chunks`, at step 2,000",
    )
    assert [path.name for path in (folder / "checkpoints").iterdir()] == [
        "000002000.pkl.lz4"
    ]
    rlcli.resume(folder, quiet=True)
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
