"""Resume from what is left of a folder, and never as another run."""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from folders import read_rows, write_run

import rlcli
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs import checkpoint
from rlcli.runs.creation import create_run
from rlcli.runs.run_folder import Run, checkpoint_step, trust_option
from rlcli.runs.snapshots import read_checkpoint
from rlcli.training import recovery
from rlcli.training.experiment.experiment import Experiment

DATA = {
    "environment": {"name": "FrozenLakeNonSlippery-v0", "num_envs": 2},
    "network": "table",
    "replay": {"name": "uniform", "capacity": 200, "batch_size": 4},
    "updater": "q_learning",
    "train": {
        "steps": 600,
        "start": 20,
        "log": {"every": 100},
        "evaluate": {"every": 200, "episodes": 2},
        "checkpoint": {"every": 100, "keep": 2},
    },
}


@pytest.fixture(scope="module")
def half_and_whole(tmp_path_factory) -> tuple[Path, Path]:
    """A run as a kill at 300 of 600 steps leaves it, and at its end."""
    folder = tmp_path_factory.mktemp("runs")
    for chunk in rlcli.chunks(DATA, run=folder / "whole", quiet=True):
        # The files of a chunk are written when the next one is requested.
        if chunk.step > 300 and not (folder / "half").exists():
            shutil.copytree(chunk.run, folder / "half")
    return folder / "half", folder / "whole"


@pytest.fixture(scope="module")
def half(half_and_whole) -> Path:
    """A run with checkpoints at 200 and 300 of 600 steps."""
    return half_and_whole[0]


@pytest.fixture(scope="module")
def whole(half_and_whole) -> Path:
    """A run that has come to its end."""
    return half_and_whole[1]


@pytest.fixture
def run(half, tmp_path) -> Path:
    """A copy of the run to spoil."""
    return Path(shutil.copytree(half, tmp_path / "run"))


def content(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def assert_alike(run: Path, other: Path) -> None:
    last = "checkpoints/000000600.pkl.lz4"
    for name in (last, "policy.pkl.lz4", "best.pkl.lz4"):
        assert (run / name).read_bytes() == (other / name).read_bytes()


ALL = ["recipe.yaml", "resolved.yaml", "run.json", "checkpoints.json", "log.txt"]


@pytest.mark.parametrize(
    ("names", "how"),
    [
        (ALL, "removed"),
        pytest.param(["run.json"], "emptied", marks=pytest.mark.slow),
        pytest.param(ALL, "emptied", marks=pytest.mark.slow),
        pytest.param(["run.json"], "removed", marks=pytest.mark.slow),
        pytest.param(["resolved.yaml"], "emptied", marks=pytest.mark.slow),
        pytest.param(["resolved.yaml"], "removed", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_is_enough_to_resume_from(names, how, run, whole):
    for name in names:
        if how == "removed":
            (run / name).unlink()
        else:
            (run / name).write_bytes(b"")
    assert rlcli.resume(run, quiet=True) == run
    assert_alike(run, whole)
    info = json.loads((run / "run.json").read_text())
    assert (info["status"], info["seeds"]) == ("finished", [0])
    assert info["layout"]["devices"] == 1
    assert (run / "resolved.yaml").read_bytes() == (
        whole / "resolved.yaml"
    ).read_bytes()


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("resolved.yaml", "gamma: 0.99", "gamma: 0.9", "`tracer.gamma` is 0.9, not"),
        ("resolved.yaml", "seed: 0", "seed: 7", "`train.seed` is 7, not 0"),
        ("run.json", "[\n    0\n  ]", "[7, 8]", "has the seeds [7, 8], but the recipe"),
    ],
)
def test_a_folder_that_disagrees_with_its_checkpoint_is_refused(
    name, old, new, words, run
):
    text = (run / name).read_text()
    assert old in text
    (run / name).write_text(text.replace(old, new))
    before = content(run)
    with pytest.raises(RlcliError) as refused:
        rlcli.resume(run, quiet=True)
    assert words in refused.value.message
    assert content(run) == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/fd")
def test_the_rows_before_a_checkpoint_are_on_the_disk_before_it(run, monkeypatch):
    """A machine that fails keeps no checkpoint that is ahead of its metrics."""
    sync, replace, steps = os.fsync, os.replace, []

    def on_sync(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/metrics.jsonl"):
            steps.append(read_rows(run)[-1]["T"])
        sync(descriptor)

    def on_replace(source, target):
        if Path(target).parent.name == "checkpoints":
            assert steps[-1] == checkpoint_step(Path(target))
            steps.append("checkpoint")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", on_sync)
    monkeypatch.setattr(os, "replace", on_replace)
    rlcli.resume(run, quiet=True)
    assert "checkpoint" in steps


def test_the_checkpoint_of_another_run_is_refused(run, tmp_path):
    parsed = load_recipe({**DATA, "train": {**DATA["train"], "seed": 7}})
    experiment = Experiment(parsed, build(parsed))
    experiment.program.begin()
    foreign = create_run("other", run=tmp_path / "other")
    experiment.save_checkpoint(foreign)
    latest = foreign.latest_checkpoint()
    assert latest is not None
    for path in (run / "checkpoints").iterdir():
        shutil.copy(latest, path)
    with pytest.raises(RlcliError, match="to different runs"):
        rlcli.resume(run, quiet=True)


@pytest.mark.slow
def test_the_best_policy_of_another_run_is_refused(run, tmp_path):
    foreign = rlcli.train(DATA, run=tmp_path / "other", seed=7, quiet=True)
    shutil.copy(foreign / "best.pkl.lz4", run / "best.pkl.lz4")
    with pytest.raises(RlcliError, match="not the best policy of this run"):
        rlcli.resume(run, quiet=True)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(run, whole, capsys):
    newest = run / "checkpoints/000000300.pkl.lz4"
    newest.write_bytes(newest.read_bytes()[:-1])
    rlcli.resume(run)
    err = capsys.readouterr().err
    assert "is damaged" in err
    assert "continuing from `000000200.pkl.lz4`" in err
    assert_alike(run, whole)


def test_a_finished_run_whose_checkpoints_are_gone_says_so(whole, tmp_path):
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    before = content(run)
    with pytest.raises(RlcliError, match="its checkpoints are missing"):
        rlcli.resume(run, quiet=True)
    (run / "checkpoints.json").unlink()
    with pytest.raises(RlcliError, match="its checkpoints are missing"):
        rlcli.resume(run, quiet=True)
    del before["checkpoints.json"]
    assert content(run) == before


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(run, whole):
    shutil.rmtree(run / "checkpoints")
    for name in ("checkpoints.json", "policy.pkl.lz4", "best.pkl.lz4"):
        (run / name).unlink()
    rlcli.resume(run, quiet=True)
    assert_alike(run, whole)


def test_a_run_that_was_killed_before_it_had_a_recipe_says_so(tmp_path):
    (tmp_path / "run").mkdir()
    Run(tmp_path / "run").write_info(status="created")
    with pytest.raises(RlcliError, match="ended before it wrote one"):
        rlcli.resume(tmp_path / "run", quiet=True)


def test_fewer_steps_than_were_made_are_refused(run):
    before = content(run)
    with pytest.raises(RlcliError, match="has already made 300 steps") as refused:
        rlcli.resume(run, set=["train.steps=200"], quiet=True)
    assert "at least 300" in refused.value.hint
    assert content(run) == before


@pytest.mark.slow  # quick in `test_verbs.py`: a finished run stays as it is
@pytest.mark.parametrize("sets", [[], ["train.log.every=7"]])
def test_a_resume_that_does_nothing_writes_nothing(sets, whole, tmp_path):
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    before = content(run)
    rlcli.resume(run, set=sets, quiet=True)
    assert content(run) == before


TRAP = """
from pathlib import Path
Path(__file__).with_name("sprung").touch()
def environment():
    Path(__file__).with_name("sprung").touch()
"""


@pytest.mark.slow
def test_resume_runs_no_code_that_a_file_of_the_run_names(run, tmp_path, monkeypatch):
    """The recipes in `best.pkl.lz4` and `policy.pkl.lz4` are not even read."""
    (tmp_path / "trap_of_a_file.py").write_text(TRAP)
    monkeypatch.syspath_prepend(tmp_path)
    trapped = "{environment: {name: 'trap_of_a_file:environment'}, updater: q_learning}"
    for name in ("best.pkl.lz4", "policy.pkl.lz4"):
        checkpoint.write(run / name, checkpoint.read(run / name) | {"recipe": trapped})
    rlcli.resume(run, quiet=True)
    assert "trap_of_a_file" not in sys.modules
    assert not (tmp_path / "sprung").exists()


def test_a_checkpoint_that_names_code_is_refused_without_trust(
    run, tmp_path, monkeypatch
):
    (tmp_path / "trap_of_a_file.py").write_text(TRAP)
    monkeypatch.syspath_prepend(tmp_path)
    for path in (run / "checkpoints").iterdir():
        saved = checkpoint.read(path)
        recipe = saved["recipe"].replace(
            "FrozenLakeNonSlippery-v0", "'trap_of_a_file:environment'"
        )
        checkpoint.write(path, saved | {"recipe": recipe})
    for name in ("resolved.yaml", "run.json"):
        with pytest.raises(RlcliError) as refused:
            rlcli.resume(run, quiet=True)
        assert "--trust" in refused.value.hint
        (run / name).unlink()
    assert not (tmp_path / "sprung").exists()


@pytest.mark.slow
def test_chunks_left_unfinished_at_the_end_of_the_interpreter_end_the_run(tmp_path):
    code = (
        "import rlcli, sys\n"
        f"chunks = rlcli.chunks({DATA!r}, run=sys.argv[1], quiet=True)\n"
        "for chunk in chunks:\n"
        "    if chunk.step >= 300: break\n"
    )
    run = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", code, run], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((run / "run.json").read_text())["status"] == "stopped"
    assert Run(run).latest_checkpoint() is not None


def test_a_run_that_a_full_disk_ended_before_its_first_checkpoint_starts_over(tmp_path):
    reason = "`log.txt` cannot be written: No space left on device"
    folder = write_run(
        tmp_path / "run", status="failed", reason=reason, is_evaluated=False
    )
    assert recovery.newest_readable(Run(folder)) == (None, [])


def test_a_run_whose_seeds_froze_before_its_first_checkpoint_does_not(tmp_path):
    frozen = {"0": "the loss is not finite"}
    folder = write_run(
        tmp_path / "run", status="failed", frozen=frozen, is_evaluated=False
    )
    with pytest.raises(RlcliError, match="failed before its first checkpoint"):
        recovery.newest_readable(Run(folder))


@pytest.fixture
def contacting_run(run):
    """A run whose recipe names a tracker with an address."""
    data = yaml.safe_load((run / "resolved.yaml").read_text())
    tracker = {"name": "mlflow", "uri": "http://127.0.0.1:9", "experiment": None}
    data["train"]["trackers"] = [tracker]
    (run / "resolved.yaml").write_text(yaml.safe_dump(data))
    return Run(run)


def test_a_stored_recipe_starts_no_tracker_that_contacts_a_host(contacting_run):
    with pytest.raises(RlcliError, match="tracker `mlflow`, which can contact a host"):
        recovery.recorded_recipe(contacting_run, None, [], False)
    with pytest.raises(RlcliError, match="tracker `mlflow`"):
        rlcli.resume(contacting_run.folder, set=["train.steps=700"], quiet=True)


def test_trackers_of_the_user_and_of_a_trusted_run_are_kept(contacting_run):
    own = "train.trackers=[{name: mlflow, uri: 'http://127.0.0.1:10'}]"
    for sets, trust in (([], True), ([own], False), (["train.trackers=[]"], False)):
        _, recipe, _ = recovery.recorded_recipe(contacting_run, None, sets, trust)
        assert len(recipe.train.trackers) == (sets != ["train.trackers=[]"])


def test_a_tracker_that_writes_into_the_run_needs_no_trust(run):
    sets = ["train.trackers=[tensorboard]"]
    _, recipe, _ = recovery.recorded_recipe(Run(run), None, sets, False)
    (run / "resolved.yaml").write_text(recipe.resolved_text)
    _, recipe, _ = recovery.recorded_recipe(Run(run), None, [], False)
    assert [part.name for part in recipe.train.trackers] == ["tensorboard"]


def test_the_command_that_resumes_a_run_with_such_a_tracker_has_the_flag(run):
    Run(run).write_info(trackers=["mlflow"])
    assert Run(run).command("resume").endswith(" --trust")
    assert not Run(run).command("eval").endswith(" --trust")
    # Of a process that another one starts, its user decides, not the run.
    assert trust_option(False) == ["--no-trust"]
    assert trust_option(True) == ["--trust"]


@pytest.mark.slow
def test_a_resume_says_and_records_that_other_versions_wrote_the_checkpoint(
    run, whole, capsys
):
    """The versions of the checkpoint count: `run.json` has those of the start."""
    path = Run(run).newest_first()[0]
    data = checkpoint.read(path)
    data["circumstances"]["versions"] |= {"jax": "0.9.1", "gone": "1.0"}
    data["circumstances"]["versions"].pop("optax")
    checkpoint.write(path, data)
    rlcli.resume(run, set=["train.steps=500"])
    jax_now = metadata.version("jax")
    message = f"other versions wrote the checkpoint (jax 0.9.1 → {jax_now})"
    assert message in capsys.readouterr().err
    (entry,) = json.loads((run / "run.json").read_text())["resumes"]
    assert entry["versions"] == {"jax": ["0.9.1", jax_now]}
    rlcli.resume(run, set=["train.steps=600"])  # from a checkpoint of today's
    assert "other versions" not in capsys.readouterr().err
    assert json.loads((run / "run.json").read_text())["resumes"][1]["versions"] == {}
    assert_alike(run, whole)


@pytest.mark.parametrize(
    "record",
    [{}, {"layout": {}, "versions": "new"}, {"layout": {}, "versions": {"jax": 2}}],
)
def test_circumstances_that_no_checkpoint_has_are_refused(run, record):
    path = Run(run).newest_first()[0]
    checkpoint.write(path, checkpoint.read(path) | {"circumstances": record})
    with pytest.raises(RlcliError, match="neither a checkpoint nor a policy"):
        read_checkpoint(path)
