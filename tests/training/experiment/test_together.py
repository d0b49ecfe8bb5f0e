"""Runs that differ in numbers only are one program, and each equals a run alone."""

import itertools
import json
import shutil

import numpy as np
import pytest
from folders import read_rows

import rlcli
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs import checkpoint, thread_layout
from rlcli.training.experiment.together import build_experiments, group_recipes
from rlcli.training.run_writer import RunWriter

DQN = """
environment: CartPole-v1
network: {layers: [8]}
replay: {name: uniform, capacity: 200, batch_size: 8}
updater: dqn
optimizer: {name: adam, learning_rate: 0.01}
train: {steps: 300, start: 20, log: {every: 60}, checkpoint: {every: 100, keep: 3}}
"""
RATES = ("optimizer.learning_rate=0.001,0.03", "tracer.gamma=0.9,0.95")


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "dqn.yaml").write_text(DQN)


def train(name: str, *sets: str, vary=RATES, **keywords):
    return rlcli.study(
        ["dqn.yaml"], vary=vary, set=sets, seeds=2, name=name, quiet=True, **keywords
    )


def assert_close(first, second) -> None:
    """Asserts that two lists of rows agree up to rounding."""
    for one, other in itertools.zip_longest(first, second):
        assert one.keys() == other.keys()
        for key in one:
            ours, theirs = (
                each[key]["mean"] if key == "evaluation" else each[key]
                for each in (one, other)
            )
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, err_msg=key)


def policies(run) -> dict:
    return checkpoint.read(run / "policy.pkl.lz4")["acting"]


def test_recipes_that_differ_in_numbers_only_are_a_group():
    def loaded(*sets: str):
        return load_recipe("dqn.yaml", sets)

    rates = [loaded(f"optimizer.learning_rate={rate}") for rate in (0.1, 0.2)]
    schedule = "optimizer.learning_rate={from: 0.2, to: 0.1, over: 100}"
    recipes = [
        rates[0],
        loaded("network.layers=[9]"),
        rates[1],
        loaded("tracer.gamma=1.0"),  # a constant of the program
        loaded(schedule),
        loaded(schedule.replace("100", "200")),
        loaded("train.stop={return: 9}", "train.evaluate.every=50"),
        loaded("train.stop={return: 9}", "train.evaluate.every=50"),
    ]
    assert group_recipes(recipes) == [[0, 2], [1], [3], [4, 5], [6], [7]]


def test_recipes_with_other_differences_cannot_be_trained_together():
    recipes = [load_recipe("dqn.yaml"), load_recipe("dqn.yaml", ["network.layers=[9]"])]
    with pytest.raises(RlcliError, match="differ in more than numbers"):
        build_experiments(recipes, [0], is_new=True)


@pytest.mark.slow
def test_each_run_equals_one_that_is_trained_alone(folder):
    """Up to rounding, after 280 updates of each seed; exactly in what is counted."""
    codes = [each.code for each in train("all", "train.evaluate.every=150")]
    assert codes == [0] * 4
    group = folder / "runs/dqn/all"
    found = {run.name: run for run in group.glob("*=*")}
    assert {*found} == {
        f"learning_rate={rate},gamma={gamma}"
        for rate in ("0.001", "0.03")
        for gamma in ("0.9", "0.95")
    }
    run = found["learning_rate=0.03,gamma=0.95"]
    alone = rlcli.train(
        "dqn.yaml",
        set=[
            "optimizer.learning_rate=0.03",
            "tracer.gamma=0.95",
            "train.evaluate.every=150",
        ],
        seeds=2,
        run="alone",
        quiet=True,
    )
    assert_close(read_rows(run), read_rows(alone))
    ours, theirs = policies(run), policies(alone)
    for path, leaf in theirs.items():
        np.testing.assert_allclose(ours[path], leaf, rtol=1e-3, atol=1e-4)
    others = [policies(each) for each in found.values() if each != run]
    for path, leaf in ours.items():
        assert all(np.any(each[path] != leaf) for each in others)
    assert len(rlcli.eval(run, episodes=4)["seeds"]) == 2


@pytest.mark.slow
def test_runs_trained_together_are_resumed_together_to_the_same_bytes(folder):
    train("whole")
    train("cut", "train.steps=200")
    group = folder / "runs/dqn/cut"
    (first, second, *_) = sorted(group.glob("*=*"))
    # One checkpoint is missing: all continue from the newest step that all have.
    (second / "checkpoints/000000200.pkl.lz4").unlink()
    rlcli.resume(first, set=["train.steps=300"], quiet=True)
    for run in group.glob("*=*"):
        whole = folder / "runs/dqn/whole" / run.name
        assert read_rows(run) == read_rows(whole)
        info = json.loads((run / "run.json").read_text())
        assert info["status"] == "finished"
        assert info["resumes"][0]["step"] == 100
        names = [path.name for path in (run / "checkpoints").iterdir()]
        assert max(names) == "000000300.pkl.lz4"
        ours, theirs = (
            checkpoint.read(each / "checkpoints/000000300.pkl.lz4")["progress"]
            for each in (run, whole)
        )
        for path, leaf in theirs.items():
            assert ours[path].tobytes() == leaf.tobytes()
    shutil.rmtree(second)
    with pytest.raises(RlcliError, match=r"together with `.*`, which is missing"):
        rlcli.resume(first, set=["train.steps=400"], quiet=True)


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_those_trained_with_it(folder):
    ended = train("rates", vary=["optimizer.learning_rate=0.01,1e38"])
    assert [each.code for each in ended] == [0, 1]
    good, bad = (each.cell.folder for each in ended)
    assert "all seeds are frozen" in ended[1].message
    assert json.loads((bad / "run.json").read_text())["status"] == "failed"
    assert {row["T"] for row in read_rows(good)} == {60, 120, 180, 240, 300}
    before = (bad / "metrics.jsonl").read_bytes()
    rlcli.resume(bad, set=["train.steps=360"], quiet=True)
    assert max(row["T"] for row in read_rows(good)) == 360
    assert (bad / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_programs_with_other_layers_are_processes_of_their_own(folder):
    vary = ["network.layers=[4],[5]", "optimizer.learning_rate=0.01,0.02"]
    ended = train("layers", "train.steps=60", vary=vary)
    assert [each.code for each in ended] == [0] * 4
    members = [
        json.loads((each.cell.folder / "run.json").read_text())["members"]
        for each in ended
    ]
    names = [each.cell.folder.name for each in ended]
    assert members == [names[:2]] * 2 + [names[2:]] * 2


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("{tracer.gamma: 0.9}", "`vary.tracer.gamma`: expected a list, got `0.9`"),
        ("3", "`vary`: expected a mapping of lists, got `3`"),
        ("[3]", "`vary`: expected a mapping of lists"),
        ("{tracer.gamma: [0.9, 0.9]}", "`vary`: `tracer.gamma=0.9` is listed twice"),
    ],
)
def test_a_wrong_section_vary_is_refused_with_its_line(vary, message, folder):
    (folder / "dqn.yaml").write_text(f"{DQN}vary: {vary}\n")
    with pytest.raises(RlcliError, match=rf"dqn.yaml:8: {message}"):
        rlcli.study(["dqn.yaml"])


def test_a_recipe_that_varies_options_is_not_a_single_run(folder):
    (folder / "dqn.yaml").write_text(f"{DQN}vary: {{tracer.gamma: [0.8, 0.9]}}\n")
    with pytest.raises(RlcliError, match="has a section `vary`"):
        rlcli.train("dqn.yaml")


class Killed(BaseException):
    """What ends a process in a test, instead of a signal."""


@pytest.mark.slow
def test_a_kill_between_two_checkpoints_leaves_one_that_all_have(folder, monkeypatch):
    """With `keep: 1`, old checkpoints are removed after all runs have a newer one."""
    save, saved = RunWriter.save, []

    def save_three(writers):
        for writer in writers:
            if len(saved) == 3:  # both at step 100, the first at step 200
                raise Killed
            saved.append(writer)
            save(writer)

    vary = ["tracer.gamma=0.9,0.95"]
    train("whole", "train.checkpoint.keep=1", vary=vary)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("rlcli.training.run_loop.save_all", save_three)
        train("cut", "train.checkpoint.keep=1", vary=vary)
    first, second = sorted((folder / "runs/dqn/cut").glob("*=*"))
    names = [path.name for path in sorted((second / "checkpoints").iterdir())]
    assert names == ["000000100.pkl.lz4"]
    rlcli.resume(second, quiet=True)
    for run in (first, second):
        assert read_rows(run) == read_rows(folder / "runs/dqn/whole" / run.name)
        assert len([*(run / "checkpoints").iterdir()]) == 1


@pytest.mark.slow
def test_an_error_between_two_checkpoints_does_not_mix_their_steps(folder, monkeypatch):
    save, calls = RunWriter.save, []

    def run_out_of_space(writers):
        for writer in writers:
            calls.append(writer)
            if len(calls) == 4:  # the second run at step 200
                raise RlcliError("the disk is full")
            save(writer)

    vary = ["tracer.gamma=0.9,0.95"]
    train("whole", vary=vary)
    with monkeypatch.context() as patch:
        patch.setattr("rlcli.training.run_loop.save_all", run_out_of_space)
        ended = train("cut", vary=vary)
    assert [each.code for each in ended] == [1, 1]
    assert all("the disk is full" in each.message for each in ended)
    first, second = sorted((folder / "runs/dqn/cut").glob("*=*"))
    for run in (first, second):
        assert json.loads((run / "run.json").read_text())["status"] == "failed"
    rlcli.resume(first, quiet=True)
    for run in (first, second):
        assert read_rows(run) == read_rows(folder / "runs/dqn/whole" / run.name)
        assert json.loads((run / "run.json").read_text())["resumes"][0]["step"] == 100


@pytest.mark.slow
def test_finished_runs_stay_as_they_are_beside_one_that_has_failed(folder, capsys):
    ended = train("rates", vary=["optimizer.learning_rate=0.01,1e38"])
    good, bad = (each.cell.folder for each in ended)
    before = {path: path.read_bytes() for path in good.rglob("*") if path.is_file()}
    rlcli.resume(bad)
    assert f"/{good.name}` is finished: 300 steps" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in before}
    shutil.rmtree(good / "checkpoints")  # killed before the first one: all start over
    (good / "checkpoints.json").unlink()
    info = json.loads((good / "run.json").read_text()) | {"status": "running"}
    (good / "run.json").write_text(json.dumps(info))
    rlcli.resume(good, quiet=True)
    assert json.loads((good / "run.json").read_text())["status"] == "finished"
    assert json.loads((bad / "run.json").read_text())["status"] == "failed"
    sets = ["train.stop={return: 9}", "train.evaluate.every=50"]
    with pytest.raises(RlcliError, match=r"cannot have `train.stop`"):
        rlcli.resume(good, set=sets, quiet=True)


@pytest.mark.slow
def test_runs_trained_together_warn_if_jax_came_before_the_threads(folder, monkeypatch):
    warning = "JAX was used before"
    monkeypatch.setattr(thread_layout, "apply_for_recipe", lambda *_, **__: warning)
    ended = train("late", vary=RATES[:1], smoke=True)
    assert warning in (ended[0].cell.folder / "log.txt").read_text()
