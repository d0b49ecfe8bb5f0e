"""`rlcli train` and `rlcli resume`: what they hand on, and how they end."""

import functools
import json
import shlex
from pathlib import Path

import pytest

import rlcli
from rlcli.cli import main
from rlcli.runs.durations import START_TIME
from rlcli.training.recovery import CHANGEABLE


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "a run"


@pytest.fixture
def ends(monkeypatch, folder):
    """Puts functions in place of training that leave a run with a status."""

    def place(status, **fields):
        calls = []

        def function(*positional, **keywords):
            calls.append((positional, keywords))
            folder.mkdir(exist_ok=True)
            (folder / "run.json").write_text(json.dumps({"status": status, **fields}))
            return folder

        for name in ("train", "resume"):
            own = functools.partial(function)  # with a signature of its own
            own = functools.update_wrapper(own, getattr(rlcli, name))
            monkeypatch.setitem(vars(rlcli), name, own)
        return calls

    return place


@pytest.mark.parametrize("place", ["runs", "run"])
def test_train_hands_every_option_to_the_function_of_its_name(ends, place):
    calls = ends("finished")
    options = f"--set a.b=1 --set c=[x] --seed 3 --seeds 2 --{place} there "
    options += "--name base --tag a --tag b --max-time 3h50m --smoke --quiet --profile "
    options += "--debug "
    options += "--coordinator host:9000 --process 0/4"
    assert main(["train", "dqn_cartpole", *options.split()]) == 0
    ((), keywords) = calls[0]
    recipe = keywords.pop("recipe")
    assert (recipe.name, recipe.sets) == ("dqn_cartpole", ())
    assert keywords == {
        "set": ["a.b=1", "c=[x]"],
        "init": None,
        "seed": 3,
        "seeds": 2,
        **{"runs": Path("runs"), "run": None, place: Path("there")},
        "name": "base",
        "tag": ["a", "b"],
        "max_time": START_TIME + 13_800,
        "smoke": True,
        "quiet": True,
        "profile": True,
        "debug": True,
        "coordinator": "host:9000",
        "process": "0/4",
        "trust": True,
    }


@pytest.mark.parametrize(
    "command",
    ["train dqn_cartpole", "study s.yaml", "sweep dqn_cartpole", "bsuite dqn_catch"],
)
def test_a_folder_to_create_the_run_below_has_no_effect_beside_the_run(command, capsys):
    # Also with the value that is the default of the option.
    assert main([*command.split(), "--run", "here", "--runs", "runs"]) == 2
    assert "--runs: has no effect beside `--run`" in capsys.readouterr().err


def test_resume_hands_every_option_to_the_function_of_its_name(ends):
    calls = ends("finished")
    options = "--set train.steps=9 --max-time 10m --quiet --trust"
    options += " --coordinator node0:9 --process 1/2"
    assert main(["resume", "runs/x", *options.split()]) == 0
    keywords = {
        "set": ["train.steps=9"],
        "max_time": START_TIME + 600,
        "quiet": True,
        "trust": True,
        "coordinator": "node0:9",
        "process": "1/2",
    }
    assert calls == [((), {"run": Path("runs/x"), **keywords})]


def test_the_help_of_resume_names_every_option_that_it_may_change(capsys):
    assert main(["resume", "--help"]) == 0
    out = capsys.readouterr().out
    assert [name for name in CHANGEABLE if f"`train.{name}`" not in out] == []


def test_the_folder_is_the_last_line_on_stdout_and_the_next_command_on_stderr(
    ends, folder, capsys
):
    ends("finished")
    main(["train", "dqn_cartpole"])
    out, err = capsys.readouterr()
    assert out == f"{folder}\n"
    assert err == f"next: rlcli eval '{folder}'\n"


def test_quiet_leaves_the_folder_alone(ends, folder, capsys):
    ends("finished")
    main(["train", "dqn_cartpole", "--quiet"])
    assert capsys.readouterr() == (f"{folder}\n", "")


@pytest.mark.parametrize("verb", ["train", "resume"])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("finished", 0),
        ("stopped", 0),
        ("failed", 1),
        ("out_of_time", 75),
        ("interrupted", 130),
        ("terminated", 143),
    ],
)
def test_the_exit_code_tells_how_the_run_ended(ends, verb, status, code):
    ends(status)
    assert main([verb, "dqn_cartpole"]) == code


def test_a_run_that_was_cut_short_is_to_be_resumed(ends, folder, capsys):
    ends("out_of_time")
    main(["train", "dqn_cartpole"])
    assert capsys.readouterr().err == f"next: rlcli resume '{folder}'\n"


@pytest.mark.slow
def test_the_next_command_works_as_it_stands_with_code_beside_the_recipe(
    tmp_path, monkeypatch, capsys, fresh_imports
):
    lab, elsewhere = tmp_path / "my lab", tmp_path / "elsewhere"
    for folder in (lab, elsewhere):
        folder.mkdir()
    (lab / "walls.py").write_text("WIDTH = 4\n")
    (lab / "my_env.py").write_text(
        "import gymnasium\nfrom walls import WIDTH\n"
        "class MyEnv(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Discrete(WIDTH)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return 0, {}\n"
        "    def step(self, action):\n"
        "        return action, 1.0, bool(action == 3), False, {}\n"
    )
    (lab / "r.yaml").write_text(
        "environment: {name: my_env:MyEnv, time_limit: 9}\nupdater: q_learning\n"
        "network: table\ntrain: {steps: 64}\n"
    )
    monkeypatch.chdir(elsewhere)
    assert main(["train", "../my lab/r.yaml", "--runs", "my runs"]) == 0
    out, err = capsys.readouterr()
    command = shlex.split(err.splitlines()[-1].removeprefix("next: "))
    assert command == ["rlcli", "eval", out.rstrip("\n")]  # signed: without --trust
    (lab / "walls.py").write_text("WIDTH = 7\n")  # the run keeps its own
    assert main([*command[1:], "--episodes", "2"]) == 0
    out, err = capsys.readouterr()
    assert "walls.py` has changed since training" in err
    assert main(["render", *command[2:]]) == 0
    assert main(["resume", *command[2:], "--set", "train.steps=96", "--quiet"]) == 0
    assert main(["eval", command[2], "--no-trust"]) == 1
