"""Run folders and recipes from elsewhere: links in them, and what they may import."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tiers import quick_first
from wording import refused

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.runs.locate import change_members, find_trained_together
from rlcli.runs.run_folder import Run
from rlcli.runs.study_record import Cell, find_study, is_signed, record_study
from rlcli.studies.study_file import read_study
from rlcli.studies.study_grid import combine, grid_of, plan_cells
from rlcli.trackers import Tracker
from rlcli.training.process_group import local_run
from rlcli.training.tracking.tracking import Tracking
from rlcli.xla.processes import ProcessGroup

LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
train: {steps: 256}
"""


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)


@pytest.fixture
def evil(folder):
    """A recipe that imports a module beside it, which creates a file."""
    (folder / "evil.py").write_text("import pathlib\npathlib.Path('marker').touch()\n")
    (folder / "evil.yaml").write_text(LAKE.replace("name: q_learning", "name: evil:x"))
    return folder / "evil.yaml"


@pytest.fixture
def victim(folder):
    """A folder elsewhere, in which nothing may change."""
    (folder / "victim").mkdir()
    yield folder / "victim"
    assert [*(folder / "victim").iterdir()] == []


@pytest.mark.parametrize(
    ("place", "words"), [("set", []), ("file", ["--vary", "updater.gamma=0.9,0.8"])]
)
def test_a_recipe_from_elsewhere_is_trained_without_its_code(
    place, words, evil, capsys, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}")
    recipe = [evil] if place == "file" else ["lake.yaml", "--set", "updater=evil:x"]
    error = refused("train", *recipe, "--no-trust", *words, capsys=capsys)
    assert "`evil:x` would import code from outside rlcli" in error
    assert not Path("marker").exists() and not [*Path("runs").rglob("run.json")]


@pytest.mark.slow
def test_what_a_setting_replaces_is_not_imported_to_compare_it(evil):
    """`changes` in `run.json` come from the recipe without settings."""
    sets = ["updater={name: q_learning, loss: mse}"]
    run = rlcli.train(evil, set=sets, trust=False, quiet=True)
    assert json.loads((run / "run.json").read_text())["changes"] is None
    assert not Path("marker").exists()


def test_a_recipe_from_elsewhere_starts_no_tracker_of_a_host(capsys):
    words = ["--set", "train.trackers=[{name: wandb, mode: offline}]", "--no-trust"]
    error = refused("train", "lake.yaml", *words, capsys=capsys)
    assert "tracker `wandb` can contact a host" in error


def test_a_run_is_not_resumed_through_its_linked_checkpoints(victim, capsys):
    run = Path("run")
    run.mkdir()
    (run / "run.json").write_text('{"status": "killed", "seeds": [0]}')
    (run / "checkpoints").symlink_to(victim)
    error = refused("resume", run, capsys=capsys)
    assert "`run/checkpoints` cannot be used: it is a symbolic link" in error
    assert "pass `--trust` if you have made the link" in error
    error = refused("resume", run, "--trust", capsys=capsys)
    assert "symbolic link" not in error


def test_a_copy_of_a_run_for_another_process_copies_no_files_of_links(folder):
    write_info(Path("run"), seeds=[0])
    Path("big/000000001.pkl.lz4").parent.mkdir()
    Path("big/000000001.pkl.lz4").touch()
    Path("run/checkpoints").symlink_to("../big")
    Path("secret").write_text("x")
    Path("run/notes").symlink_to(folder / "secret")
    copy = local_run(ProcessGroup("127.0.0.1:1", 1, 2), Run(Path("run")))
    assert copy.folder != Path("run") and (copy.folder / "notes").is_symlink()
    assert [each.name for each in copy.list_checkpoints()] == ["000000001.pkl.lz4"]


@pytest.mark.parametrize("command", ["diff", "resume"])
def test_no_recipe_is_read_through_a_link(command, folder, capsys):
    for name in ("a", "b"):
        write_info(Path(name), status="killed", seeds=[0], recipe="lake")
        Path(name, "resolved.yaml").symlink_to(folder / "lake.yaml")
    words = ["diff", "a", "b"] if command == "diff" else ["resume", "a"]
    error = refused(*words, capsys=capsys)
    assert "a/resolved.yaml` cannot be read: it is a symbolic link" in error


def write_info(path, **fields):
    path.mkdir(parents=True, exist_ok=True)
    (path / "run.json").write_text(json.dumps(fields))


def test_a_member_is_not_another_run_elsewhere(folder):
    write_info(Path("group/a"), members=["a", "b"])
    write_info(Path("elsewhere"), members=["a", "b"])
    Path("group/b").symlink_to(folder / "elsewhere")
    with pytest.raises(RlcliError, match="group/b` cannot be used: it is a symbolic"):
        find_trained_together(Run(Path("group/a")))
    with pytest.raises(RlcliError, match="group/b` cannot be used: it is a symbolic"):
        change_members([Run(Path("group/a"))])
    assert "[" in (folder / "elsewhere/run.json").read_text()


def test_a_cell_is_not_another_run_elsewhere(folder, capsys):
    write_info(Path("elsewhere"), status="killed")
    record_study(
        Path("group"), [Cell(Path("group/x=1"), Path("group"), "lake.yaml", "")]
    )
    Path("group/x=1").symlink_to(folder / "elsewhere")
    with pytest.raises(RlcliError, match="x=1` cannot be used: it is a symbolic link"):
        find_study("group")
    assert "symbolic link" in refused("resume", "group", capsys=capsys)


@pytest.mark.parametrize("label", ["./a", "a/", "b//c", "/a", "a/../b", "", "."])
def test_a_record_names_each_run_once_and_by_its_place(label, folder):
    record_study(Path("group"), [Cell(Path("group/a"), Path("group"), "lake.yaml", "")])
    record = json.loads(Path("group/study.json").read_text())
    record["cells"][label] = record["cells"]["a"]
    Path("group/study.json").write_text(json.dumps(record))
    with pytest.raises(RlcliError, match="is damaged: a name of a folder"):
        find_study("group")


@pytest.mark.parametrize("store", [{"name": "x"}, {"url": "s3://b"}, 3, None, []])
def test_a_damaged_store_of_a_study_is_one_error(store, folder):
    cell = Cell(Path("group/a"), Path("group"), "lake.yaml", "")
    record_study(Path("group"), [cell], run_storage=store)
    with pytest.raises(RlcliError, match="has a store"):
        rlcli.study("group")


def test_a_new_cell_is_not_written_through_a_link(victim, capsys):
    Path("group").mkdir()
    Path("group/loss=mse").symlink_to(victim)
    words = ["--vary", "updater.loss=mse,huber", "--run", "group"]
    assert "symbolic link" in refused("train", "lake.yaml", *words, capsys=capsys)


def start_tracker():
    """The tracking of a run with a tracker that writes into its folder."""
    tracker = Tracker(lambda run: None, lambda *_: None, lambda *_: None)
    recipe, run = load_recipe("lake.yaml"), Run(Path("run"))
    return Tracking({"mine": tracker}, run, recipe, [0, 1], 0)


def test_a_recipe_of_a_batch_is_not_trained_through_a_link(folder, victim, capsys):
    Path("batch").mkdir()
    Path("batch/lake").symlink_to(victim)
    (folder / "pond.yaml").write_text(LAKE)
    words = ["train", "lake.yaml", "pond.yaml", "--run", "batch"]
    assert "symbolic link" in refused(*words, capsys=capsys)
    Path("linked").symlink_to(folder / "batch")  # named by the user
    Path("batch/lake").unlink()
    words = ["train", "lake.yaml", "pond.yaml", "--run", "linked", "--smoke"]
    assert main([*words, "--quiet", "--set", "train.steps=0"]) == 1
    assert "symbolic link" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tensorboard", "tensorboard/seed_0", "wandb"])
def test_trackers_write_through_no_link(name, victim):
    write_info(Path("run"), seeds=[0, 1])
    link = Path("run", name)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)
    with pytest.raises(RlcliError, match=f"{name}` cannot be used: it is a symbolic"):
        start_tracker()


def test_links_that_wandb_makes_and_linked_checkpoints_are_left_alone(victim):
    write_info(Path("run/wandb"))
    Path("run/wandb/latest-run").symlink_to(victim)
    Path("run/checkpoints").symlink_to(victim)
    start_tracker().finish(0)


def test_a_sparse_file_of_metrics_needs_no_memory(folder):
    write_info(Path("run"), status="finished")
    with Path("run/metrics.jsonl").open("wb") as file:
        file.truncate(2**40)
    from rlcli.runs.metrics import MetricsReader, read_metrics

    for read in (read_metrics, lambda path: MetricsReader(path).read()):
        with pytest.raises(RlcliError, match="line 1 has more than"):
            read(Path("run"))


OWN = """
from rlcli.environments.native.toy_text.frozen_lake import frozen_lake
def lake(*, slip: float = 0.0):
    return frozen_lake()
"""


@pytest.fixture
def own_run(folder, fresh_imports):
    """A run with code of the user, which the user's rlcli has trained."""
    (folder / "lab").mkdir()
    (folder / "lab/own_lake.py").write_text(OWN)
    text = LAKE.replace("FrozenLakeNonSlippery-v0", "own_lake:lake")
    (folder / "lab/own.yaml").write_text(text)
    return rlcli.train("lab/own.yaml", run="runs/own", quiet=True)


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_copied_its_code_gets_it_when_it_is_resumed(
    own_run,
):
    info = json.loads((own_run / "run.json").read_text())
    shutil.rmtree(own_run / "checkpoints")
    for name in ("checkpoints.json", "metrics.jsonl"):
        (own_run / name).unlink()
    (own_run / "code/own_lake.py").rename(own_run / "code/own_lake.py.1.tmp")
    fields = {key: info.pop(key) for key in ("imports", "code", "trackers")}
    del info["signature"]
    (own_run / "run.json").write_text(json.dumps({**info, "status": "running"}))
    rlcli.resume(own_run, trust=True, quiet=True)
    after = json.loads((own_run / "run.json").read_text())
    assert {key: after[key] for key in fields} == fields
    assert [each.name for each in (own_run / "code").iterdir()] == ["own_lake.py"]
    assert after["status"] == "finished"


def use(run, steps, **keywords):
    """Evaluates and continues a run."""
    rlcli.eval(run, episodes=1, **keywords)
    rlcli.resume(run, set=[f"train.steps={steps}"], quiet=True, **keywords)


@pytest.mark.slow
def test_ones_own_run_is_used_without_trust_where_it_was_moved(own_run, folder):
    use(own_run.rename(folder / "moved"), 288)


@pytest.mark.slow
def test_ones_own_run_is_used_without_trust_again_and_without_its_module(
    own_run, folder
):
    use(own_run, 288)
    moved = own_run.rename(folder / "moved")
    use(moved, 320)
    (folder / "lab/own_lake.py").unlink()
    use(moved, 352)  # signed anew by the resume, so that its copies are trusted here
    assert rlcli.reproduce(moved, to="again", quiet=True)["identical"]


@pytest.mark.slow
def test_ones_own_run_that_began_with_another_is_reproduced_without_trust(own_run):
    later = rlcli.train("lab/own.yaml", run="runs/later", init=own_run, quiet=True)
    assert rlcli.reproduce(later, to="again", quiet=True)["identical"]


def test_ones_own_run_is_not_trusted_once_it_is_changed(own_run, folder):
    with pytest.raises(RlcliError, match="would import code"):
        use(own_run, 288, trust=False)
    (folder / "lab/own_lake.py").write_text(OWN + "open('marker', 'w')\n")
    (own_run / "code/own_lake.py").write_text(OWN + "open('marker', 'w')\n")
    commands = rlcli.eval, rlcli.resume, rlcli.reproduce, rlcli.load, rlcli.inspect
    for command in commands:
        with pytest.raises(RlcliError, match="would import code") as error:
            command(own_run)
        assert "--trust" in error.value.hint
    assert not Path("marker").exists()


def test_a_checkpoint_of_another_in_ones_own_run_is_not_trusted(own_run, evil):
    from rlcli.runs import checkpoint

    for path in (own_run / "checkpoints").iterdir():
        saved = checkpoint.read(path)
        recipe = saved["recipe"].replace("own_lake:lake", "evil:x")
        checkpoint.write(path, saved | {"recipe": recipe})
    with pytest.raises(RlcliError, match="would import code"):
        rlcli.resume(own_run, set=["train.steps=288"], quiet=True)
    assert not Path("marker").exists()


@pytest.mark.slow
def test_a_run_of_a_recipe_without_trust_is_not_signed():
    run = rlcli.train("lake.yaml", trust=False, quiet=True)
    assert "signature" not in json.loads((run / "run.json").read_text())


@pytest.fixture
def own_study(folder, fresh_imports):
    """A study of the user whose cells import their code, and have not begun."""
    (folder / "lab").mkdir()
    (folder / "lab/own_lake.py").write_text(OWN)
    text = LAKE.replace("FrozenLakeNonSlippery-v0", "own_lake:lake")
    (folder / "lab/own.yaml").write_text(text)
    grid = grid_of(["lab/own.yaml"], combinations=[*combine(["tracer.gamma=0.9,0.8"])])
    study = folder / "runs/study"
    record_study(study, plan_cells(grid, study), sign=True)
    return study


@pytest.mark.slow
def test_ones_own_study_begins_its_cells_without_trust(own_study):
    ends = rlcli.study(own_study, quiet=True)
    assert [each.code for each in ends] == [0, 0]
    assert is_signed(own_study)


@pytest.mark.slow
def test_a_study_is_signed_unless_its_user_does_not_trust_it(folder, own_study):
    keywords = {"vary": ["tracer.gamma=0.9,0.8"], "quiet": True}
    ends = rlcli.study(["lab/own.yaml"], run="own", **keywords)
    assert [each.code for each in ends] == [0, 0] and is_signed(Path("own"))
    rlcli.study(["lake.yaml"], run="other", trust=False, **keywords)
    assert "signature" not in json.loads(Path("other/study.json").read_text())


TESTED = """
recipes: [own.yaml]
vary: {tracer.gamma: [0.9, 0.8]}
seeds: 4
set: [train.log.every=32]
test: {baseline: own gamma=0.9, effect: 0.1, max_seeds: 8}
"""


@pytest.mark.parametrize("is_changed", quick_first([True, False]))
def test_the_blocks_that_a_test_adds_are_ones_own_if_the_study_is(
    own_study, is_changed, evil
):
    Path("lab/paper.yaml").write_text(TESTED)
    study = own_study.parent / "tested"
    grid = read_study("lab/paper.yaml")
    record_study(study, plan_cells(grid, study), sign=True, **grid.sections)
    if is_changed:
        change_settings(study)
    ends = rlcli.study(study, quiet=True)
    assert is_signed(study) is not is_changed
    codes = [1, 1] if is_changed else [0, 0, 0, 0]
    assert [each.code for each in ends] == codes
    assert not Path("marker").exists()


def change_module(study):
    Path("lab/own_lake.py").write_text(OWN + "open('marker', 'w')\n")


def change_recipe(study):
    path = Path("lab/own.yaml")
    path.write_text(path.read_text().replace("q_learning", "evil:x"))


def change_settings(study):
    record = study / "study.json"
    text = record.read_text().replace("tracer.gamma=0.9", "updater=evil:x")
    record.write_text(text)


def add_cell(study):
    cell = find_study(study).cells[0]
    evil = cell._replace(folder=study / "evil", sets=("updater=evil:x",))
    assert is_signed(study)
    change_settings(study)  # what is not signed is not signed by adding to it
    record_study(study, [evil], sign=True)


@pytest.mark.parametrize(
    "change", [change_module, change_recipe, change_settings, add_cell]
)
def test_ones_own_study_is_not_trusted_once_it_is_changed(own_study, evil, change):
    change(own_study)
    ends = rlcli.study(own_study, quiet=True)
    assert all(each.code == 1 for each in ends) and not is_signed(own_study)
    assert not Path("marker").exists()


@pytest.mark.slow
@pytest.mark.parametrize("place", [shutil.move, shutil.copytree])
def test_ones_own_study_is_trusted_elsewhere_as_long_as_its_files_are_as_they_were(
    own_study, folder, place
):
    place(own_study, folder / "elsewhere")
    before = Path("lab/own_lake.py").read_text()
    change_module(own_study)
    for trust in (None, False):
        ends = rlcli.study("elsewhere", quiet=True, trust=trust)
        assert all("would import code" in each.message for each in ends)
    assert not Path("marker").exists()
    Path("lab/own_lake.py").write_text(before)
    ends = rlcli.study("elsewhere", quiet=True, trust=False)
    assert all("would import code" in each.message for each in ends)
    ends = rlcli.study("elsewhere", quiet=True)
    assert [each.code for each in ends] == [0, 0]
