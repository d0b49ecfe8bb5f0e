"""The command line: help, errors, exit codes, streams."""

import os
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import rlcli
import rlcli.__main__
from rlcli import COMMAND_GROUPS, COMMANDS, command_name
from rlcli.cli import app, main
from rlcli.errors import INTERRUPTED, OUT_OF_TIME, RlcliError


@pytest.fixture
def show(monkeypatch):
    """Puts a function in the place of `rlcli.show`, which `rlcli show x` calls."""
    return lambda function: monkeypatch.setitem(vars(rlcli), "show", function)


def fails(error):
    def function(*words, **options):
        raise error

    return function


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "rlcli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.parametrize("verb", [*map(command_name, COMMANDS)])
def test_every_verb_has_help(verb):
    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert f"rlcli {verb}" in result.stdout or f" {verb} " in result.stdout
    usage = result.stdout.partition("\n")[0]
    assert not re.search(r"\[\[|\.[]}]", usage)  # Typer writes brackets and dots


def test_help_names_every_verb_on_stdout():
    result = run("--help")
    assert result.returncode == 0
    assert result.stderr == ""
    assert all(f"\n  {verb} " in result.stdout for verb in map(command_name, COMMANDS))


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_has_the_whole_first_sentence_of_every_verb(columns):
    result = run("--help", env={**os.environ, "COLUMNS": str(columns)})
    words = " ".join(result.stdout.split())
    for name in map(command_name, COMMANDS):
        command = typer.main.get_command(app).commands[name]
        sentence = " ".join(command.help.partition("\n\n")[0].split())
        assert f" {name} {sentence} " in f"{words} "
        if columns >= 80:
            assert re.search(rf"^  {name} +{re.escape(sentence)}$", result.stdout, re.M)


def test_help_has_every_verb_in_the_group_of_its_row(capsys):
    main(["--help"])
    groups = dict(re.findall(r"^(\w.*):\n((?:  .*\n)+)", capsys.readouterr().out, re.M))
    del groups["Options"]
    assert {
        title: re.findall(r"^  (\S+)", rows, re.M) for title, rows in groups.items()
    } == {title: [*map(command_name, row)] for title, row in COMMAND_GROUPS.items()}


def test_help_answers_at_once():
    program = (
        "import sys, time; from rlcli.cli import main; main(['--help']); "
        "print(time.process_time(), *sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    seconds, *modules = result.stderr.split()
    slow = {"jax", "numpy", "optax", "pydantic", "rich", "yaml", "rlcli.registry"}
    assert not slow & {*modules}
    assert float(seconds) < 1.7  # 0.17 s of processor time


def test_without_a_verb_the_help_goes_to_stderr():
    result = run()
    assert result.returncode == 2
    assert result.stdout == ""
    assert "\nSet up:\n" in result.stderr


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rlcli {rlcli.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "no such command 'trian'. Did you mean 'train'?"),
        (["train"], "missing argument 'RECIPE'"),
        (["train", "x", "--sed", "1"], "no such option: --sed"),
        (["train", "x", "--seeds", "0"], "invalid value for '--seeds'"),
        (["train", "x", "--seed", "many"], "invalid value for '--seed'"),
        (["train", "x", "--max-time", "5x"], "invalid value for --max-time"),
        (["resume", "x", "--max-time", "0s"], "invalid value for --max-time"),
        (["render", "x", "--size", "3"], "invalid value for --size"),
        (["render", "x", "--size", "0x3"], "invalid value for --size"),
        (["eval", "x", "--episodes", "0"], "invalid value for '--episodes'"),
    ],
)
def test_wrong_usage_is_one_line_and_a_hint_and_exits_2(arguments, message, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    error, blank, hint = err.splitlines()
    assert out == "" and blank == ""
    assert error.startswith(f"error: {message}")
    assert hint.startswith("hint: see `rlcli")


def test_what_the_user_can_mend_is_a_message_and_a_hint(show, capsys):
    show(fails(RlcliError("there is no part `[red]x`", "did you mean `y`?")))
    assert main(["show", "x"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: there is no part `[red]x`\n\nhint: did you mean `y`?\n"


def test_a_variable_prints_the_traceback_of_an_error(show, monkeypatch, capsys):
    monkeypatch.setenv("RLCLI_TRACEBACK", "1")
    show(fails(RlcliError("there is no part `x`")))
    assert main(["show", "x"]) == 1
    assert main(["check", "nope"]) == 1  # which catches its errors itself
    err = capsys.readouterr().err
    assert err.count("Traceback (most recent call last):") == 2
    assert "error: there is no part `x`\n" in err
    assert "\nerror: there is no recipe `nope`" in err


def test_an_error_may_bring_its_own_exit_code(show):
    show(fails(RlcliError("too late", code=OUT_OF_TIME)))
    assert main(["show", "x"]) == OUT_OF_TIME


def test_control_characters_of_a_message_do_not_reach_the_terminal(show, capsys):
    show(fails(RlcliError("no part `\x1b[2J\r`")))
    main(["show", "x"])
    assert capsys.readouterr().err == "error: no part `\\x1b[2J\\x0d`\n"


def test_ctrl_c_exits_130_without_a_traceback(show, capsys):
    show(fails(KeyboardInterrupt()))
    assert main(["show", "x"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_folder_that_may_not_be_written_is_an_error_of_one_line(show, capsys):
    show(fails(PermissionError(13, "Permission denied", "runs")))
    assert main(["show", "x"]) == 1
    assert capsys.readouterr().err == "error: `runs`: Permission denied\n"


def test_a_mistake_of_ours_keeps_its_traceback(show):
    show(fails(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["show", "x"])


def test_a_reader_that_goes_away_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        result = subprocess.run(
            [sys.executable, "-m", "rlcli", "--help"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has /dev/full")
def test_a_full_disk_is_an_error_of_one_line():
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "rlcli", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "error: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    [
        ["show", "{}"],
        ["show", "updater", "{}"],
        ["list", "{}"],
        ["{}"],
        ["--{}"],
        ["eval", "{}"],
        ["eval", "{}", "--episodes", "{}"],
        ["check", "dqn_cartpole", "--set", "{}"],
        ["check", "dqn_cartpole", "--set", "updater.{}=1"],
        ["check", "dqn_cartpole", "--set", "updater={}"],
        ["train", "{}"],
        ["render", "{}"],
        ["runs", "{}", "--filter", "{}"],
        ["plot", "{}"],
        ["report", "{}"],
        ["new", "dqn_cartpole", "--environment", "{}"],
        ["sweep", "{}"],
        ["sweep", "show", "{}"],
        ["bsuite", "{}"],
        ["collect", "{}"],
        ["export", "{}"],
        ["resume", "{}"],
        ["reproduce", "{}"],
        ["watch", "{}"],
        ["compare", "{}", "--group", "{}"],
        ["diff", "{}", "{}"],
        ["schema", "--output", "{}"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("text", ["x" * 50_000, "a\n" * 2_000, "9" * 5_000])
def test_an_error_quotes_at_most_a_line_of_what_was_given(words, text, capsys):
    assert main([word.format(text) for word in words]) in (1, 2)
    error, _, hint = capsys.readouterr().err.partition("\n")
    assert error.startswith("error: ") and len(error) <= 720
    assert hint.count("\n") <= 3 and len(hint) < 7_000


class _Interrupt:
    """A finder of modules during whose search the user presses Ctrl-C."""

    def find_spec(self, name, *_):
        if name == "rlcli.cli":
            raise KeyboardInterrupt


def test_ctrl_c_during_the_imports_prints_no_traceback(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "rlcli.cli")
    monkeypatch.setattr(sys, "meta_path", [_Interrupt(), *sys.meta_path])
    assert rlcli.__main__.main() == INTERRUPTED
    assert capsys.readouterr() == ("", "interrupted\n")
