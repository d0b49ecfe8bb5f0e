"""Evaluation: episodes with the policy of a run, a policy file or a checkpoint."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from policy_files import write_policy
from wording import mentions

import rlcli
from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.evaluation.evaluate import replace_environment
from rlcli.loop import evaluator as evaluator_module
from rlcli.runs import snapshots
from rlcli.runs.creation import create_run
from rlcli.runs.run_folder import Run
from rlcli.runs.snapshots import Policies
from rlcli.runs.statistics import iqm
from rlcli.training.experiment.experiment import Experiment

DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [8]},
    "policy": {
        "name": "epsilon_greedy",
        "epsilon": {"from": 0.0, "to": 1.0, "over": 100},
    },
    # Smaller than what an evaluation plays at once.
    "replay": {"name": "uniform", "capacity": 64, "batch_size": 4},
    "updater": "q_learning",
    "train": {"steps": 1_000, "seeds": 2},
}


def begin_run(folder: Path, data=DATA, advance: int = 0) -> Path:
    """A run that has hardly learned."""
    parsed = recipe.load_recipe(data)
    experiment = Experiment(parsed, build(parsed)._replace(devices=1))
    run = create_run("mine", run=folder)
    experiment.program.begin()
    if advance:
        experiment.advance(advance)
    experiment.save_checkpoint(run)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return begin_run(tmp_path_factory.mktemp("runs") / "run")


EPISODES = 129  # of each seed; more than an evaluation plays at once


@pytest.fixture(scope="module")
def result(run):
    """The result of an evaluation of the run."""
    return rlcli.eval(run, episodes=EPISODES)


def test_the_result_is_what_the_schema_says(run, result):
    assert json.loads(json.dumps(result)) == result
    assert set(result) == {
        *("run", "checkpoint", "environment", "episodes", "seeds", "return", "info"),
        "parameters",
    }
    assert result["run"] == str(run)
    assert result["checkpoint"] == str(run / "policy.pkl.lz4")
    assert result["environment"] == "CartPole-v1"
    assert result["episodes"] == 2 * 128  # each environment plays as many as the others
    assert [row["seed"] for row in result["seeds"]] == [0, 1]
    for row in result["seeds"]:
        names = ("seed", "mean", "std", "min", "max", "length", "frozen")
        assert set(row) == {*names, "returns", "lengths", "info", "parameters"}
        assert len(row["returns"]) == len(row["lengths"]) == 2 * 128
        assert row["mean"] == pytest.approx(np.mean(row["returns"]))
        assert row["returns"] == row["lengths"]  # CartPole pays 1 for every step
        assert row["min"] <= row["mean"] == row["length"] <= row["max"]
    means = [row["mean"] for row in result["seeds"]]
    assert result["return"]["mean"] == pytest.approx(np.mean(means))
    assert result["return"]["iqm"] == pytest.approx(iqm(means))
    low, high = result["return"]["ci95"]
    assert min(means) <= low <= high <= max(means)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_and_another_one_others(run):
    first, again, other = (rlcli.eval(run, episodes=5, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["seeds"] != other["seeds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "episodes", "played"),
    [
        pytest.param("CartPole-v1", 100, 100, marks=pytest.mark.slow),
        ("gymnasium/CartPole-v1", 25, 3 * 10),
    ],
)
def test_every_environment_plays_the_same_number_of_episodes_rounded_up(
    name, episodes, played, run
):
    assert rlcli.eval(run, episodes=episodes, environment=name)["episodes"] == played


def test_a_policy_file_alone_is_enough(run, result, tmp_path):
    lonely = Path(shutil.copy(run / "policy.pkl.lz4", tmp_path / "other.pkl.lz4"))
    ours = rlcli.eval(lonely, episodes=EPISODES)
    assert ours["run"] is None
    assert ours["checkpoint"] == str(lonely)
    assert ours["seeds"] == result["seeds"]


def test_a_checkpoint_plays_as_the_policy_of_its_moment(run, result):
    saved = run / "checkpoints" / "000000000.pkl.lz4"
    ours = rlcli.eval(saved, episodes=EPISODES)
    assert ours["run"] == str(run)
    assert ours["seeds"] == result["seeds"]


@pytest.mark.slow
def test_exploring_is_as_it_was_when_the_policy_was_taken(run, tmp_path):
    # ε goes from 0 to 1 in 100 steps: none at first, and nothing but chance later.
    def spread(folder: Path) -> tuple:
        results = [
            rlcli.eval(folder, episodes=20, explore=explore)["seeds"]
            for explore in (False, True)
        ]
        return results[0], results[1]

    greedy, exploring = spread(run)
    assert greedy == exploring
    greedy, exploring = spread(begin_run(tmp_path / "later", advance=60))
    assert greedy != exploring


def test_the_best_is_asked_for_in_vain_where_nothing_was_evaluated(run):
    with pytest.raises(RlcliError) as caught:
        rlcli.eval(run, best=True)
    assert "train.evaluate" in caught.value.hint


@pytest.mark.slow
def test_the_best_is_another_policy_than_the_latest(tmp_path):
    folder = begin_run(tmp_path / "run")
    parsed = recipe.load_recipe(DATA)
    experiment = Experiment(parsed, build(parsed)._replace(devices=1))
    files = Run(folder)
    saved = snapshots.read_checkpoint(files.latest_checkpoint())
    experiment.program.restore(saved)
    experiment.restore(saved, files)
    acting = rlcli.runs.checkpoint.read(folder / "policy.pkl.lz4")["acting"]
    # It always pushes to the left: ten steps or so.
    stubborn = {name: np.zeros_like(leaf) for name, leaf in acting.items()}
    stubborn["q/linear_1/b"][:] = [1.0, 0.0]
    numbers = np.array([7, 7])
    experiment.scores.best = Policies(np.array([9.0, 9.0]), numbers, numbers, stubborn)
    experiment.save_checkpoint(files)
    result = rlcli.eval(folder, best=True, episodes=10)
    assert result["checkpoint"] == str(folder / "best.pkl.lz4")
    for row in result["seeds"]:
        assert 8 <= row["min"] <= row["max"] <= 11
    assert result["seeds"] != rlcli.eval(folder, episodes=10)["seeds"]


@pytest.mark.slow
def test_the_original_environment_agrees_with_ours_on_a_policy(run):
    ours = rlcli.eval(run, episodes=100)
    theirs = rlcli.eval(run, episodes=100, environment="gymnasium/CartPole-v1")
    assert theirs["environment"] == "gymnasium/CartPole-v1"
    for row, other in zip(ours["seeds"], theirs["seeds"], strict=True):
        noise = 4 * np.hypot(row["std"], other["std"]) / np.sqrt(100)
        assert abs(row["mean"] - other["mean"]) <= noise + 0.5


@pytest.mark.slow
def test_the_environment_may_be_another_one_in_more_than_its_name(run):
    short = "{name: CartPole-v1, time_limit: 5}"
    result = rlcli.eval(run, episodes=3, environment=short)
    assert result["environment"] == "CartPole-v1"
    assert {row["max"] for row in result["seeds"]} == {5.0}


def test_another_environment_has_as_many_copies_unless_it_says_so():
    six = recipe.load_recipe(
        {**DATA, "environment": {"name": "CartPole-v1", "num_envs": 6}}
    )
    assert replace_environment(six, "CartPole-v1").num_envs == 6
    assert replace_environment(six, "{name: CartPole-v1, num_envs: 2}").num_envs == 2


def test_an_environment_without_a_name_changes_options_of_the_runs_own():
    own = {"name": "CartPole-v1", "masscart": 2.0, "time_limit": 9}
    trained = recipe.load_recipe({**DATA, "environment": own})
    other = replace_environment(trained, "{masspole: 0.2}")
    assert (other.environment.name, other.time_limit) == ("CartPole-v1", 9)
    assert other.environment.options["masscart"] == 2.0
    assert other.environment.options["masspole"] == 0.2


@pytest.mark.slow
def test_a_grid_is_played_equally_often_and_the_return_is_by_value(tmp_path):
    grid = {"length": [0.2, 2], "step_reward": [0, 3, 1]}
    train = {**DATA["train"], "evaluate": {"grid": grid}}
    environment = {"name": "CartPole-v1", "num_envs": 2, "failure_reward": 0}
    data = {**DATA, "train": train, "environment": environment}
    result = rlcli.eval(begin_run(tmp_path / "run", data), episodes=8)
    assert result["episodes"] == 12  # whole rounds of six combinations
    for row in result["seeds"]:
        paid, length = (
            np.array(row["parameters"][name]) for name in sorted(grid)[::-1]
        )
        pairs = np.stack([length, paid], axis=1)
        assert np.unique(pairs, axis=0, return_counts=True)[1].tolist() == [2] * 6
        # The last step of an episode, in which the pole falls, pays nothing.
        expected = paid * (np.array(row["lengths"]) - 1)
        np.testing.assert_allclose(row["returns"], expected)
    by_value = result["parameters"]["step_reward"]
    assert [each["from"] for each in by_value] == [0, 1, 3]
    assert [each["episodes"] for each in by_value] == [8, 8, 8]
    assert by_value[0]["mean"] == 0 < by_value[1]["mean"] < by_value[2]["mean"]
    other = rlcli.eval(tmp_path / "run", episodes=4, environment="CartPole-v1")
    assert other["parameters"] == {} and other["episodes"] == 4


@pytest.mark.slow
def test_episodes_of_an_evaluation_draw_their_own_numbers(tmp_path):
    each = {"step_reward": {"uniform": [1, 2]}, "failure_reward": [0, 0.5]}
    environment = {"name": "CartPole-v1", "num_envs": 2, "each": each}
    folder = begin_run(tmp_path / "run", {**DATA, "environment": environment})
    result, again, other = (
        rlcli.eval(folder, episodes=129, seed=seed) for seed in (0, 0, 1)
    )
    assert result == again != other
    row = result["seeds"][1]
    paid, last = (np.array(row["parameters"][k]) for k in each)
    assert len(np.unique(paid)) == len(paid) == result["episodes"]
    expected = paid * (np.array(row["lengths"]) - 1) + last
    np.testing.assert_allclose(row["returns"], expected, rtol=1e-5)
    groups = result["parameters"]["step_reward"]
    assert [each["to"] for each in groups] == pytest.approx([1.2, 1.4, 1.6, 1.8, 2])
    # The policy in Python plays the same first episodes.
    env = rlcli.load(folder, seed=1).make_env()
    env.reset(seed=0)
    _, reward, *_ = env.step(0)
    assert reward == pytest.approx(paid[0])


@pytest.mark.parametrize("wrong", ["{name: CartPole-v1, lenght: 1}", "{name: [", "[]"])
def test_an_environment_that_is_none_is_refused(wrong, run):
    with pytest.raises(RlcliError):
        rlcli.eval(run, environment=wrong)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("FrozenLakeNonSlippery-v0", "observation"),
        ("probe-continuous-action", "observation"),
    ],
)
def test_an_environment_with_other_spaces_is_refused_with_both(name, what, run):
    with pytest.raises(RlcliError) as caught:
        rlcli.eval(run, environment=name)
    assert f"cannot act in `{name}`: its {what} space is" in caught.value.message
    assert mentions(caught.value.hint, "`CartPole-v1`")


@pytest.mark.slow
def test_episodes_that_never_end_are_cut_with_a_warning(tmp_path, monkeypatch, capsys):
    endless = {
        **DATA,
        "environment": {"name": "probe-truncation", "time_limit": None},
        "train": {"steps": 1_000},
    }
    folder = begin_run(tmp_path / "run", endless)
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 20)
    result = rlcli.eval(folder, episodes=3)
    assert result["seeds"][0]["length"] == result["seeds"][0]["mean"] == 20
    err = capsys.readouterr().err
    assert err.startswith("warning: 3 of 3 episodes were truncated")
    assert "had not ended after" in err


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "num_cut"), [(8, 0), (9, 6)])
def test_only_episodes_longer_than_an_evaluations_limit_are_a_reason_to_warn(
    limit, num_cut, run, monkeypatch, capsys
):
    monkeypatch.setattr(evaluator_module, "MAX_EPISODE_STEPS", 8)
    environment = f"{{time_limit: {limit}}}"
    result = rlcli.eval(run, episodes=3, environment=environment)
    assert [row["lengths"] for row in result["seeds"]] == [[8] * 3] * 2
    err = capsys.readouterr().err
    assert err.startswith(f"warning: {num_cut} of 6 episodes") if num_cut else err == ""


def test_nothing_is_known_of_a_folder_without_a_run(tmp_path):
    with pytest.raises(RlcliError):
        rlcli.eval(tmp_path)


def test_evaluating_leaves_the_run_as_it_was(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    rlcli.eval(run, episodes=EPISODES)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_a_deterministic_world_gives_what_was_worked_out_by_hand(tmp_path):
    data = {
        "environment": "probe-reward-depends-on-action",
        "network": {"name": "mlp", "layers": [4]},
        "updater": "q_learning",
        "train": {"steps": 100},
    }
    file = write_policy(tmp_path, data, scale=0.0)
    content = rlcli.runs.checkpoint.read(file)
    better = np.array([[0.0, 5.0]], np.float32)  # action 1
    content["acting"]["q/linear_1/b"] = better
    rlcli.runs.checkpoint.write(file, content)
    result = rlcli.eval(file, episodes=7)
    (row,) = result["seeds"]
    numbers = {"seed": 0, "mean": 1, "std": 0, "min": 1, "max": 1, "length": 1}
    episodes = {"returns": [1] * 7, "lengths": [1] * 7}
    assert row == numbers | {"frozen": None, "info": {}, "parameters": {}} | episodes
    total = {"mean": 1, "iqm": 1, "ci95": None, "frozen": 0}
    assert result["return"] == total
