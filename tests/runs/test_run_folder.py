"""The folder of a run: files, locking and removal."""

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from folders import finish_run

from rlcli.errors import RlcliError
from rlcli.monitor import Monitor
from rlcli.runs import run_folder
from rlcli.runs.creation import create_run
from rlcli.runs.locate import find_trained_together
from rlcli.runs.metrics import Metrics
from rlcli.runs.run_folder import Run

pytestmark = pytest.mark.usefixtures("folder")


def test_what_lies_in_a_run_has_the_names_of_the_design():
    run = Run(Path("r"))
    files = [
        run.recipe,
        run.resolved_recipe,
        run.info,
        run.metrics,
        run.log,
        run.policy,
    ]
    assert [str(path) for path in [*files, run.best, run.index]] == [
        *("r/recipe.yaml", "r/resolved.yaml", "r/run.json", "r/metrics.jsonl"),
        *("r/log.txt", "r/policy.pkl.lz4", "r/best.pkl.lz4", "r/checkpoints.json"),
    ]
    assert str(run.checkpoint(50_000)) == "r/checkpoints/000050000.pkl.lz4"


def test_information_is_merged_and_resumes_are_listed():
    run = create_run("dqn")
    run.write_info(status="running", seeds=[0, 1])
    run.record_resume(step=100)
    run.record_resume(step=200)
    info = run.read_info()
    assert (info["status"], info["seeds"]) == ("running", [0, 1])
    assert [resume["step"] for resume in info["resumes"]] == [100, 200]
    assert all(re.fullmatch(r"\S+Z", resume["time"]) for resume in info["resumes"])


def test_the_latest_checkpoint_is_the_one_that_the_index_names():
    run = create_run("dqn")
    assert run.latest_checkpoint() is None
    finish_run(run, 100, 2_000_000_000, 300)
    assert run.latest_checkpoint() == run.checkpoint(300)


def test_where_the_index_names_none_the_latest_is_the_highest_step():
    run = finish_run(create_run("dqn"), 999_999_999, 1_000_000_000, 300)
    run.index.unlink()
    assert run.latest_checkpoint() == run.checkpoint(1_000_000_000)
    run.write_index(latest="gone.pkl.lz4", best={0: {"step": 300, "return": 9.5}})
    assert run.latest_checkpoint() == run.checkpoint(1_000_000_000)
    assert run.read_index()["best"] == {"0": {"step": 300, "return": 9.5}}


def test_pruning_keeps_the_newest_checkpoints():
    run = finish_run(create_run("dqn"), 100, 999_999_999, 1_000_000_000)
    (run.checkpoints / "notes.txt").write_text("the user's")
    run.prune_checkpoints(2, 1_000_000_000)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == ["1000000000.pkl.lz4", "999999999.pkl.lz4", "notes.txt"]
    with pytest.raises(ValueError, match="at least 1"):
        run.prune_checkpoints(0, 100)


def test_pruning_spares_checkpoints_beyond_the_step_of_an_older_one():
    run = finish_run(create_run("dqn"), 100, 200, 300)
    run.prune_checkpoints(1, 200)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == ["000000200.pkl.lz4", "000000300.pkl.lz4"]


def test_only_temporary_files_of_rlcli_are_removed():
    run = finish_run(create_run("dqn"), 100)
    ours = [
        *(".run.json.12.345.tmp", ".policy.pkl.lz4.12.345.tmp", ".run.json.12"),
        *("checkpoints/.000000100.pkl.lz4.7.8.tmp", "checkpoints/.000000100.pkl.lz4.7"),
        "films/.000000100.gif.7.8.tmp",
    ]
    users = [
        *(".bashrc", ".run.json.swp", ".notes.txt.1.tmp", "checkpoints/.half"),
        *("checkpoints/.nfs000.12", "checkpoints/.run.json.12.345.tmp"),
        "films/.mine.gif.7.8.tmp",
    ]
    run.make_films_folder()
    for name in (*ours, *users):
        (run.folder / name).write_bytes(b"")
    (run.checkpoints / ".ipynb_checkpoints").mkdir()
    (run.folder / ".best.pkl.lz4.1.tmp").mkdir()
    run.remove_temporaries()
    run.prune_checkpoints(1, 100)
    assert not any((run.folder / name).exists() for name in ours)
    assert all((run.folder / name).exists() for name in users)
    assert (run.checkpoints / ".ipynb_checkpoints").is_dir()
    assert (run.folder / ".best.pkl.lz4.1.tmp").is_dir()


def test_checkpoints_that_cannot_be_listed_are_not_missing(monkeypatch):
    """Else a run of which nobody may read them would start over."""
    run = create_run("dqn")
    assert run.list_checkpoints() == []
    run.checkpoints.mkdir()

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(RlcliError, match="checkpoints` cannot be read: Permission"):
        run.list_checkpoints()


def test_folders_pipes_and_other_names_are_not_checkpoints():
    run = finish_run(create_run("dqn"), 100)
    (run.checkpoints / "000000200.pkl.lz4").mkdir()
    os.mkfifo(run.checkpoints / "000000300.pkl.lz4")
    (run.checkpoints / "4.pkl.lz4").write_bytes(b"")
    (run.checkpoints / "latest000000500.pkl.lz4").write_bytes(b"")
    assert run.newest_first() == [run.checkpoint(100)]
    run.prune_checkpoints(1, 1_000)
    assert len([*run.checkpoints.iterdir()]) == 5


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"seeds": "all"}', '`seeds` is `"all"`'),
        ('{"seeds": [0, 1.5]}', "`seeds`"),
        ('{"resumes": 3}', "`resumes`"),
        ('{"resumes": [{"time": 5}]}', "`resumes`"),
        ('{"resumes": [{"step": "a"}]}', "`resumes`"),
        ('{"status": ["a"]}', "`status`"),
        ('{"layout": []}', "`layout`"),
        ('{"command": {}}', "`command`"),
        ("[" * 100_000, "is damaged"),
        ('{"a":' * 100_000, "is damaged"),
        ("nonsense", "is damaged"),
    ],
)
def test_an_odd_run_json_is_refused_in_one_line(content, named):
    run = create_run("dqn")
    run.info.write_text(content)
    with pytest.raises(RlcliError, match="damaged") as refused:
        run.read_info()
    assert named in refused.value.message
    assert len(refused.value.message) < 400
    assert "remove it" in refused.value.hint


def test_an_index_that_points_out_of_the_run_is_not_followed(folder):
    run = finish_run(create_run("dqn"), 100)
    (folder / "000000900.pkl.lz4").write_bytes(b"")
    for name in ("../../../000000900.pkl.lz4", "/etc/passwd", 7, None, ["a"]):
        run.write_index(latest=name)
        assert run.latest_checkpoint() == run.checkpoint(100)


FOLLOWED = ["run.json", "recipe.yaml", "resolved.yaml", ".lock", "checkpoints.json"]


@pytest.mark.parametrize("name", [*FOLLOWED, "log.txt", "metrics.jsonl"])
def test_no_write_goes_through_a_symbolic_link(folder, name):
    victim = folder / "victim"
    victim.write_text("precious")
    (folder / "mine").mkdir()
    (folder / "mine" / name).symlink_to(victim)
    with contextlib.suppress(RlcliError):
        run = create_run("dqn", run="mine", written="a", resolved="b")
        run.write_info(status="running")
        run.write_index(latest="x")
        with Metrics(run.folder) as rows:
            rows.append([{"T": 1, "seed": 0}])
        with Monitor(title="t", quiet=True) as monitor:
            monitor.begin(10, [0], log_path=run.log)
            monitor.message("hello")
    assert victim.read_text() == "precious"


def test_a_folder_of_checkpoints_may_be_linked_and_nothing_else_in_it_is_removed(
    folder,
):
    target = folder / "big disk"
    target.mkdir()
    (target / ".bashrc").write_text("precious")
    (target / ".run.json.1").write_text("precious")
    run = create_run("dqn")
    run.checkpoints.symlink_to(target)
    run.make_checkpoints_folder()
    for step in (100, 200):
        run.checkpoint(step).write_bytes(b"")
    run.remove_temporaries()
    run.prune_checkpoints(1, 200)
    names = sorted(path.name for path in target.iterdir())
    assert names == [".bashrc", ".run.json.1", "000000200.pkl.lz4"]


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for():
    run = create_run("dqn")
    run.info.unlink()
    os.mkfifo(run.info)
    with pytest.raises(RlcliError, match="not a regular file"):
        run.read_info()
    (run.folder / ".lock").unlink()
    os.mkfifo(run.folder / ".lock")
    with pytest.raises(RlcliError, match="cannot be written"), run.lock():
        pass


def test_two_processes_do_not_train_into_one_folder_and_a_killed_one_lets_go():
    run = create_run("dqn")
    code = (
        "import sys, time; from pathlib import Path; from rlcli.runs.run_folder import "
        "Run\n"
        "run = Run(Path(sys.argv[1]))\n"
        "with run.lock():\n"
        "    run.sign_lock()\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, run.folder.absolute()],
        stdout=subprocess.PIPE,
        cwd=Path(run_folder.__file__).parents[2],
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(
                RlcliError, match=f"process {other.pid} is already training into"
            ),
            run.lock(),
        ):
            pass
        assert not run.is_abandoned()
        other.send_signal(signal.SIGKILL)
    assert run.is_abandoned()
    before = (run.folder / ".lock").stat().st_mtime_ns
    with run.lock():
        assert not run.is_abandoned()
    with run.lock():
        pass
    assert (run.folder / ".lock").stat().st_mtime_ns == before


def test_a_run_waits_for_a_process_that_only_tests_the_lock():
    run = create_run("dqn")
    with (run.folder / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        release = threading.Timer(0.02, fcntl.flock, (file, fcntl.LOCK_UN))
        release.start()
        with run.lock():
            pass
        release.join()


def test_a_run_without_a_lock_file_is_abandoned_and_one_without_locks_may_not_be(
    monkeypatch,
):
    run = create_run("dqn")

    def fail(*arguments):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    assert not run.is_abandoned()
    (run.folder / ".lock").unlink()
    assert run.is_abandoned()


def test_a_run_that_never_got_going_leaves_nothing(folder):
    run = create_run("dqn")
    with run.lock():
        run.recipe.write_text("x")
        run.discard()
    assert not (folder / "runs" / "dqn").exists()


def test_discarding_a_run_spares_other_runs_and_what_was_there_before(folder):
    kept, run = create_run("dqn"), create_run("dqn")
    run.discard()
    assert [path.name for path in (folder / "runs/dqn").iterdir()] == [kept.folder.name]
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("")
    create_run("dqn", run="mine").discard()
    assert [path.name for path in (folder / "mine").iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="no checkpoint"):
        finish_run(create_run("dqn"), 100).discard()


def test_runs_are_found_without_jax():
    code = (
        "import sys, rlcli.runs.run_folder, rlcli.runs.metrics, rlcli.runs.statistics, "
        "rlcli.monitor\n"
        "sys.exit('jax' in sys.modules)"
    )
    root = Path(run_folder.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "`members` is"),
        (["a", "a"], "`members` is"),
        (["a", "../b"], "`members` is"),
        (["a", ""], "`members` is"),
        (["a", "\0"], "`members` is"),
        (["b"], "under another name"),
        (["a", "missing"], "which is missing"),
        (["a", "alone"], "name different runs"),
        (["a", "other"], "name different runs"),
    ],
)
def test_forged_members_are_refused(folder, members, message):
    create_run("dqn", run="a", members=members)
    create_run("dqn", run="alone")
    create_run("dqn", run="other", members=["other", "a"])
    with pytest.raises(RlcliError, match=message):
        find_trained_together(Run(folder / "a"))


def test_members_are_found_from_each_of_them(folder):
    for name in ("a", "b"):
        create_run("dqn", run=name, members=["a", "b"])
    assert find_trained_together(Run(folder / "b")) == [
        Run(folder / "a"),
        Run(folder / "b"),
    ]
