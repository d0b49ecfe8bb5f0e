"""Streams that are closed, or break: training goes on, and the exit code is its own."""

import io
import json
import logging
import os
import subprocess
import sys
import warnings

import jax
import pytest
from folders import write_run

from rlcli import cli
from rlcli.cli import output

RECIPE = """\
environment: CartPole-v1
network: {name: mlp, layers: [8]}
updater: ppo
train: {steps: 2_000, unroll: 20, log: {every: 100}, checkpoint: {every: 1_000}}
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return "mine.yaml"


def shell(command, folder):
    text = command.replace("rlcli", f"{sys.executable} -m rlcli")
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", text],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def status(run):
    return json.loads((run / "run.json").read_text())["status"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "streams", ["2>&1 | head -1", "<&- >&- 2>&-", "2>&1 | true", "2>&-", ">&-"]
)
def test_training_goes_on_when_nobody_listens(streams, recipe, tmp_path):
    done = shell(f"rlcli train {recipe} --run run {streams}", tmp_path)
    assert done.returncode == 0
    assert status(tmp_path / "run") == "finished"
    assert (tmp_path / "run/checkpoints/000002000.pkl.lz4").is_file()
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["T"] for line in lines] == [*range(100, 2_001, 100)]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_training_and_not_of_the_pipe(recipe, tmp_path):
    command = f"rlcli train {recipe} --run run --max-time 1s 2>&1 | true"
    assert shell(command, tmp_path).returncode == 75


@pytest.mark.slow
@pytest.mark.parametrize("command", ["list", "list environments", "--help"])
def test_a_reader_that_has_read_enough_is_no_error(command, tmp_path):
    done = shell(f"rlcli {command} | head -1", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_no_file_of_a_run_gets_the_number_of_a_closed_stream(recipe, tmp_path):
    """What a library writes to stderr would land in it."""
    code = (
        "import os, sys, rlcli.cli\n"
        "code = rlcli.cli.main(sys.argv[1:])\n"
        "file = open('mine.yaml')\n"
        "sys.exit(100 + file.fileno() if file.fileno() < 3 else code)\n"
    )
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{code}" check mine.yaml <&- >&- 2>&-'],
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0


def rlcli(*words, folder, **variables):
    return subprocess.run(
        [sys.executable, "-m", "rlcli", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ascii", "latin-1"])
def test_a_stream_that_is_not_utf_8_gets_escapes(name, tmp_path):
    done = rlcli("show", "tracer", "λ≥", folder=tmp_path, PYTHONIOENCODING=name)
    assert done.returncode == 1
    assert b"there is no tracer `\\u03bb\\u2265`" in done.stderr
    shown = rlcli("list", "tracers", folder=tmp_path, PYTHONIOENCODING=name)
    assert shown.returncode == 0 and b"\\u03bb" in shown.stdout


def test_json_is_json_in_any_encoding(tmp_path, monkeypatch):
    """The escapes of Python would be no JSON: `\\xe9`, `\\U0001f642`."""
    value = {"é": "λ 🙂 \udcff"}
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    output.open_standard_streams()
    output.print_data(output.as_json(value))
    assert json.loads(stream.buffer.getvalue().decode("ascii")) == value


@pytest.mark.filterwarnings("always")
def test_warnings_and_log_messages_of_libraries_are_escaped(capsys):
    with output.print_warnings():
        warnings.warn("a\x1b[2Jb", UserWarning, stacklevel=1)
        record = {"msg": "c\x1b[2J%s", "args": ("d",), "levelno": logging.WARNING}
        logging.lastResort.handle(logging.makeLogRecord(record))
    err = capsys.readouterr().err
    assert "a\\x1b[2Jb" in err and "c\\x1b[2Jd" in err and "\x1b" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("JAX_PLATFORMS", "nonsense"),
        ("JAX_PLATFORMS", "cuda"),
        ("JAX_ENABLE_X64", "x"),
        ("JAX_DEFAULT_DEVICE", "nonsense"),
        ("JAX_NO_TRACING", "1"),
    ],
)
def test_a_variable_that_jax_cannot_use_is_one_clear_error(variable, value, tmp_path):
    words = ("check", "dqn_cartpole")
    done = rlcli(*words, folder=tmp_path, **{variable: value, "NPROC": "1"})
    text = done.stderr.decode()
    assert done.returncode == 1 and "Traceback" not in text
    start = f"error: JAX cannot use the environment variable `{variable}={value}`: "
    assert text.splitlines()[-3].startswith(start)


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [("JAX_PLATFORMS", "cpu", "cpu"), ("JAX_ENABLE_X64", "0", "enable_x64")],
)
def test_an_error_in_a_compiled_function_is_not_that_of_a_variable(
    variable, value, key, monkeypatch
):
    """Although it names one, and its traceback lacks the frames of JAX, too."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(KeyError) as caught:
        jax.jit(lambda x: x * {"gpu": 1.0}[key])(1.0)
    assert "JAX has removed" in "".join(caught.value.__notes__)
    assert cli._explain_variables(caught.value) is None


def test_a_variable_that_matplotlib_cannot_use_is_one_clear_error(tmp_path):
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "run")
    words = ("plot", "run", "--output", "a.png")
    done = rlcli(*words, folder=tmp_path, MPLBACKEND="nonsense")
    assert done.returncode == 1
    start = (
        "error: matplotlib cannot use the environment variable `MPLBACKEND=nonsense`"
    )
    assert done.stderr.decode().startswith(start)
