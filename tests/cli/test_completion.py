"""Shell completion, as each shell asks for it."""

import contextlib
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import shellingham

from rlcli import COMMANDS, command_name
from rlcli.cli import main
from rlcli.recipe.documents import dump_yaml
from rlcli.registry import KINDS

RUN = "runs/dqn_cartpole/2026-11-20T10-00-00_train.steps=10"


@pytest.fixture
def complete(monkeypatch, capsys):
    """Completes the end of a line, by default in bash; a list of candidates."""

    def answer(line, shell="bash"):
        monkeypatch.setenv("_RLCLI_COMPLETE", f"complete_{shell}")
        # As in bash: `=` is a word, and none follows it before the cursor.
        words = re.findall(r"=|[^\s=]+", line) + [""] * line.endswith(" ")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        main([])
        output = capsys.readouterr()
        assert output.err == ""
        return output.out.splitlines()

    return answer


@pytest.fixture
def folder(folder):
    """A working directory with a run and a recipe."""
    Path(RUN).mkdir(parents=True)
    Path(RUN, "run.json").write_text("{}")
    text = "environment: CartPole-v1\nupdater: dqn\noptimizer: sgd\n"
    Path(RUN, "resolved.yaml").write_text(text)
    Path("mine").mkdir()
    Path("mine", "own.yaml").write_text(text)
    Path("mine", "notes.txt").touch()
    return folder


def test_commands_are_completed_in_each_shell(complete):
    assert {*complete("rlcli ")} == {*map(command_name, COMMANDS)}
    assert complete("rlcli tra") == ["train"]
    assert complete("rlcli tra", "zsh")[0].startswith('_arguments \'*: :(("train":')
    assert complete("rlcli tra", "fish")[0].startswith("train\tTrain the agent")


def test_options_of_a_command_are_completed(complete):
    assert complete("rlcli train --se") == ["--set", "--seed", "--seeds"]
    assert complete("rlcli export --format o") == ["onnx"]
    assert complete("rlcli plot --x ") == ["steps", "seconds", "updates"]


def test_recipes_are_names_or_yaml_files(complete, folder):
    assert complete("rlcli train ppo_pend") == ["ppo_pendulum"]
    assert complete("rlcli train mi") == ["mine/own.yaml"]
    assert complete("rlcli check dqn_cartpole mine/") == ["mine/own.yaml"]
    assert complete("rlcli train mine/own.yaml --set optimizer.mom")[0] == (
        "optimizer.momentum="
    )
    assert complete("rlcli new mi") == []


def test_runs_are_the_folders_below_runs(complete, folder):
    assert complete("rlcli resume ") == [RUN]
    assert complete("rlcli eval runs/d") == [RUN]
    assert complete(f"rlcli eval {RUN.removesuffix('10')}") == ["10"]
    assert complete(f"rlcli resume {RUN} --set optimizer.mom")[0] == (
        "optimizer.momentum="
    )
    Path(RUN).with_name("second").mkdir()
    Path(RUN).with_name("second").joinpath("run.json").write_text("{}")
    assert complete("rlcli report runs/d") == [RUN, "runs/dqn_cartpole/second"]
    study = Path("runs/studies/paper/first")
    study.mkdir(parents=True)
    study.joinpath("study.json").write_text("{}")
    assert complete("rlcli compare runs/s") == [str(study)]


def test_policies_of_the_zoo_are_completed(complete, folder):
    assert "zoo/ppo_cartpole" in complete("rlcli eval zoo/p")


def test_parts_are_completed(complete):
    assert complete("rlcli show upd") == ["updater"]
    assert complete("rlcli show updater doub") == ["double_dqn", "double_q_learning"]
    assert complete("rlcli show recipe ppo_pend") == ["ppo_pendulum"]
    assert complete("rlcli list ") == [*KINDS.values(), "recipes"]
    assert complete("rlcli eval runs --environment CartP") == ["CartPole-v1"]


@pytest.mark.parametrize(
    ("setting", "bash", "others"),
    [
        ("updater=du", ["dueling_dqn"], ["updater=dueling_dqn"]),
        ("normalize.reward=", ["false", "true"], None),
        ("replay.cap", ["replay.capacity=", "replay.capacity=50000"], None),
        ("policy.name=eps", ["epsilon_greedy"], ["policy.name=epsilon_greedy"]),
    ],
)
def test_settings_are_completed(complete, setting, bash, others):
    line = f"rlcli train dqn_cartpole --set a=b --set {setting}"
    assert complete(line) == bash
    if others:
        assert complete(line, "fish") == others
        (answer,) = complete(line, "zsh")
        assert answer == f"_arguments '*: :((\"{others[0]}\"))'"


def test_an_option_joined_to_its_setting_is_completed_in_bash(complete):
    assert complete("rlcli train dqn_cartpole --set=updater=du") == ["dueling_dqn"]


def test_varied_values_are_completed_after_each_comma(complete):
    line = "rlcli train dqn_cartpole --vary updater"
    assert complete(f"{line}=du") == ["dueling_dqn"]
    assert complete(f"{line}=sac,du") == ["sac,dueling_dqn"]
    assert complete(f"{line}=sac,du", "fish") == ["updater=sac,dueling_dqn"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "name", ["p$(touch x)", "p`x`", "p;x", "p --trust", "p\x1b[2J", "p\nq", "p'\""]
)
def test_names_in_a_recipe_from_elsewhere_are_no_commands(
    complete, folder, name, shell
):
    part = {"name": "mlp"}
    recipe = {"updater": "ppo", "network": {name: part, "policy": part}}
    Path(RUN, "resolved.yaml").write_text(dump_yaml(recipe))
    output = "".join(complete(f"rlcli resume {RUN} --set network.p", shell))
    assert name not in output and "x1b" not in output
    assert "network.policy" in output


def test_a_value_that_is_missing_does_not_hide_the_next_option(complete):
    keys = complete("rlcli train dqn_cartpole --set a= --set optim")
    assert keys == ["optimizer=", "optimizer."]


@pytest.mark.parametrize("option", ["--set ", "--set="])
def test_settings_before_the_last_count(complete, option):
    line = (
        f"rlcli train dqn_cartpole --seed 1 --set optimizer=sgd {option}optimizer.mom"
    )
    assert complete(line)[0] == "optimizer.momentum="


@pytest.mark.parametrize(
    "line",
    ["rlcli trainer", "rlcli train nowhere/", "rlcli eval é/", "rlcli show x 'y"],
)
@pytest.mark.parametrize("shell", ["bash", "fish", "unknown"])
def test_what_cannot_be_completed_prints_nothing(complete, line, shell):
    assert complete(line, shell) == []


def test_an_error_prints_nothing(complete, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr("rlcli.recipe.key_completion.complete_setting", fail)
    assert complete("rlcli train dqn_cartpole --set a") == []


def test_completing_imports_no_jax():
    words = ["rlcli", "train", "dqn_cartpole", "--set", "updater", "=", "d"]
    environment = {
        "_RLCLI_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    program = (
        "import sys; from rlcli.cli import main; main(); "
        "print({'jax', 'numpy'} & {*sys.modules})"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "dqn\n" in result.stdout
    assert result.stdout.endswith("\nset()\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_the_shell_is_printed_and_installed(
    monkeypatch, tmp_path, capsys, shell
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(shellingham, "detect_shell", lambda: (shell, f"/bin/{shell}"))
    assert main(["--show-completion"]) == 0
    script = capsys.readouterr().out
    assert f"_RLCLI_COMPLETE=complete_{shell}" in script
    assert main(["--install-completion"]) == 0
    assert f"{shell} completion installed in {tmp_path}" in capsys.readouterr().out
    files = [path.read_text() for path in tmp_path.rglob("*rlcli*") if path.is_file()]
    assert [text.strip() for text in files] == [script.strip()]


@pytest.mark.slow
def test_bash_completes_a_line(tmp_path):
    program = tmp_path / "rlcli"
    python = shlex.quote(sys.executable)
    program.write_text(f'#!/bin/sh\nexec {python} -m rlcli "$@"\n')
    program.chmod(0o755)
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(  # without a fork, which JAX warns of
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(other_end)
    try:
        termios.tcsetwinsize(terminal, (50, 200))  # bash shortens longer lines
        script = b'eval "$(_RLCLI_COMPLETE=source_bash rlcli)"'
        os.write(terminal, script + b'; echo re""ady\n')
        read_until(terminal, "ready")
        os.write(terminal, b"rlcli show dqn_cartpole --set updater=dueli\t")
        read_until(terminal, "--set updater=dueling_dqn ")
        os.write(terminal, b"--set replay.cap\t")
        read_until(terminal, "--set replay.capacity=")
    finally:
        os.close(terminal)  # bash ends with its terminal
        process.wait(30)


def read_until(terminal, text, seconds=30):
    output, end = "", time.monotonic() + seconds
    while text not in output:
        assert time.monotonic() < end, output
        with contextlib.suppress(BlockingIOError):
            if select.select([terminal], [], [], 0.1)[0]:
                output += re.sub("[\r\a]", "", os.read(terminal, 65_536).decode())
