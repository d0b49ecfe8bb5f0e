"""Errors that need no JAX: found before it is imported, and before work begins."""

import json
import subprocess
import sys

import pytest

import rlcli
from rlcli import errors
from rlcli.cli import main
from rlcli.errors import RlcliError

PROGRAM = """
import json, sys
from rlcli.cli import main
for arguments in json.load(sys.stdin):
    code = main(arguments)
    print(json.dumps([code, "jax" in sys.modules]))
"""
# The command, and words of its error.
COMMANDS = [
    ("train nope", "there is no recipe `nope`"),
    ("train nope.yaml", "there is no file `nope.yaml`"),
    ("train broken.yaml", "broken.yaml:2: "),
    ("train dqn_cartpole --set foo", "--set foo: expected `key=value`"),
    ("train dqn_cartpole --set trai.n=3", "has no section `trai`"),
    ("train dqn_cartpole --set train.step=3", "has no option `step`"),
    ("train dqn_cartpole --set train.steps=x", "expected"),
    ("train dqn_cartpole --set train.updates=[]", "expected"),
    ("train dqn_cartpole --set normalize.rewards=yes", "has no option `rewards`"),
    ("train dqn_cartpole --runs file", "`file` cannot be written to: Not a directory"),
    ("train dqn_cartpole --run file/run", "`file/run` cannot be created"),
    ("train dqn_cartpole --run old", "`old` already contains a run"),
    ("sweep nope --space x.yaml", "there is no recipe `nope`"),
    ("sweep dqn_cartpole --space x.yaml", "there is no file `x.yaml`"),
    ("sweep dqn_cartpole --space broken.yaml", "broken.yaml:2: "),
    ("sweep show nope", "`nope` is not the folder of a sweep"),
    ("verify-resume nope", "there is no recipe `nope`"),
    ("verify-resume dqn_cartpole --set foo", "--set foo: expected `key=value`"),
    ("check nope", "there is no recipe `nope`"),
    ("show nope", "there is no recipe `nope`"),
    ("eval nope", "there is no file or folder `nope`"),
    ("eval runs/nope", "there is no file or folder `runs/nope`"),
    ("eval old", "run `old` has no policy yet"),
    ("inspect nope", "there is no file or folder `nope`"),
    ("inspect old", "run `old` has no checkpoint"),
    ("resume nope", "there is no file or folder `nope`"),
    ("render runs/nope", "there is no file or folder `runs/nope`"),
    ("render nope.pkl.lz4", "there is no file or folder `nope.pkl.lz4`"),
    ("render nope.yaml", "there is no file `nope.yaml`"),
    ("render dqn_cartpole --output x.avi", "is not the name of a video"),
    ("render dqn_cartpole --output file/x.gif", "`file` cannot be written to"),
    ("render dqn_cartpole --output no/folder.gif", "`no/folder.gif` is a folder"),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The exit code, whether JAX was imported, and stderr of each command."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "file").write_text("")
    (folder / "broken.yaml").write_text("a: [\n")
    (folder / "no" / "folder.gif").mkdir(parents=True)
    (folder / "old").mkdir()
    (folder / "old" / "run.json").write_text("{}")
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([command.split() for command, _ in COMMANDS]),
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    assert not [*folder.glob("runs/*")], "nothing is created"
    return [json.loads(line) for line in process.stdout.splitlines()], process.stderr


def test_no_early_error_imports_jax(results):
    codes, _ = results
    assert codes == [[1, False]] * len(COMMANDS)


@pytest.mark.parametrize("words", [words for _, words in COMMANDS])
def test_an_early_error_says_what_is_wrong(results, words):
    assert words in results[1]


def test_a_missing_extra_for_the_output_is_found_before_work_begins(
    monkeypatch, capsys
):
    calls = []
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setitem(vars(rlcli), "render", lambda *_, **__: calls.append("render"))
    assert main(["render", "dqn_cartpole", "--output", "/nope/x.mp4"]) == 1
    assert calls == []
    error = capsys.readouterr().err
    assert "writing an mp4 requires `av`: not installed" in error
    assert 'hint: pip install "av' in error


def test_an_existing_parent_that_denies_writing_is_refused(tmp_path, monkeypatch):
    def deny(dir):
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("tempfile.TemporaryFile", deny)
    with pytest.raises(RlcliError) as error:
        rlcli.train("dqn_cartpole", runs=tmp_path / "deep" / "runs")
    assert error.value.message.endswith(
        "/deep/runs` cannot be created: Permission denied"
    )
    assert "`--runs`" in error.value.hint
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(
    ("platform", "words"),
    [("win32", "Windows"), ("cygwin", "Windows"), ("freebsd14", "not on `freebsd14`")],
)
def test_an_unsupported_platform_is_told_so_at_once(
    platform, words, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "platform", platform)
    for arguments in (["train", "dqn_cartpole"], ["--version"]):
        assert main(arguments) == errors.USER_ERROR
        assert words in capsys.readouterr().err
    with pytest.raises(RlcliError, match=words):
        _ = rlcli.eval


def test_the_command_line_can_be_imported_where_posix_is_missing():
    program = (
        "import sys, typer, yaml, rich\n"
        "sys.modules['fcntl'] = None\nsys.platform = 'win32'\n"
        "from rlcli.cli import main\nsys.exit(main(['train', 'dqn_cartpole']))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.startswith("error: rlcli does not run natively on Windows")
    assert "install WSL" in process.stderr
