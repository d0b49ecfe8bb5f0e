"""Folders of sweeps from elsewhere: nothing in them runs code, or leads out of them.

Each attack is real: a pickle that writes a file, a module beside a recipe, a link, a
pipe. Its marker must not exist afterwards.
"""

import json
import os
import pickle
import shutil
import signal
import sqlite3
from pathlib import Path
from random import Random

import pytest
from sweeps import FakeEngine, use_fake_engines
from tiers import quick_first
from wording import refused

import rlcli
from rlcli.cli import main
from rlcli.cli.sweep_screen import print_sweep
from rlcli.errors import RlcliError
from rlcli.recipe import read_recipe
from rlcli.runs.run_folder import trust_option
from rlcli.runs.study_record import is_signed
from rlcli.studies.search import journal
from rlcli.studies.study_grid import digest_of

pytest.importorskip("optuna")
LAKE = """
environment: FrozenLakeNonSlippery-v0
network: table
updater: {name: q_learning, loss: mse}
optimizer: {name: sgd, learning_rate: 0.5}
train: {steps: 2_000, evaluate: {every: 500, episodes: 2}}
"""
SPACE = {"optimizer.learning_rate": {"log_uniform": [0.01, 1.0]}}
POPULATION = {"sampler": "pbt", "trials": 4, "pruner": None, "together": None}


class Code:
    """Unpickled, it creates a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "lake.yaml").write_text(LAKE)


@pytest.fixture
def marker(folder):
    """A file that only foreign code would create."""
    return folder / "marker"


@pytest.fixture
def engines(monkeypatch):
    return use_fake_engines(
        monkeypatch, lambda options, seed, step: step * options["train.seed"]
    )


@pytest.fixture(autouse=True)
def _alarm():
    """Ends a test that waits, for example for a pipe."""

    def stop(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def start(**keywords):
    options = {"space": SPACE, "trials": 2, "seeds": 2, "jobs": 1, "confirm": 0}
    options |= {"sampler": "random", "pruner": "none", "together": 1, "run": "sweep"}
    options |= keywords
    options = {key: value for key, value in options.items() if value is not None}
    return rlcli.sweep("lake.yaml", **options)


def add_lines(path, *entries):
    with (path / "journal.log").open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in entries)


def pickle_for_cmaes(marker):
    """The attributes in which Optuna's sampler looks for its state."""
    return {"cma:optimizer:0": pickle.dumps(Code(marker)).hex(), "cma:generation": 0}


@pytest.mark.usefixtures("engines")
def test_the_state_of_cmaes_is_never_unpickled_from_the_journal(marker, capsys):
    path = start(sampler="cmaes", trials=3)
    value = journal.Journal(path / "journal.log", is_reader=True)
    study = next(each for each in value.read_logs(0) if each["op_code"] == 0)
    assert study["study_name"]
    add_lines(
        path,
        {
            **{"op_code": 4, "worker_id": "x", "study_id": 0, "state": 1},
            **{"datetime_start": None, "value": 1.0, "values": None},
            "system_attrs": pickle_for_cmaes(marker),
        },
    )
    assert main(["sweep", str(path), "--resume", "--trials", "6", "--quiet"]) == 0
    assert len(rlcli.show_sweep(path)["trials"]) == 6
    assert not marker.exists()


@pytest.mark.usefixtures("engines")
@pytest.mark.slow
def test_the_state_of_cmaes_is_never_unpickled_from_a_database(marker):
    url = "sqlite:///trials.db"
    path = start(sampler="cmaes", trials=3, storage=url)
    with sqlite3.connect("trials.db") as database:
        for key, value in pickle_for_cmaes(marker).items():
            database.execute(
                "INSERT INTO trial_system_attributes (trial_id, key, value_json) "
                "VALUES (1, ?, ?)",
                (key, json.dumps(value)),
            )
    database.close()
    rlcli.sweep(path, resume=True, trials=6, storage=url)
    assert len(rlcli.show_sweep(path, storage=url)["trials"]) == 6
    assert not marker.exists()


def add_module(folder, marker):
    """A recipe that imports a module beside it, which creates the marker."""
    (folder / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        "from rlcli.environments.native.toy_text.frozen_lake import *\n"
        "def make():\n    raise RuntimeError\n"
    )
    text = LAKE.replace("FrozenLakeNonSlippery-v0", "evil:make")
    (folder / "evil.yaml").write_text(text)
    return folder / "evil.yaml"


def change_settings(path, **changes):
    """Replaces values in the settings of a sweep."""
    record = json.loads((path / "study.json").read_text())
    assert record["search"].keys() >= changes.keys()
    record["search"] |= changes
    (path / "study.json").write_text(json.dumps(record))


def change_recipe(path, recipe):
    """Lets a sweep and its trials name another recipe, as if it had begun with it."""
    own = {"recipe": str(recipe), "digest": digest_of(read_recipe(recipe))}
    record = json.loads((path / "study.json").read_text())
    record["search"] |= own
    for cell in record["cells"].values():
        cell |= own
    (path / "study.json").write_text(json.dumps(record))


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("keywords", [{}, POPULATION])
def test_a_recipe_that_a_folder_names_imports_no_module(
    keywords, folder, marker, capsys
):
    path = start(**keywords)
    change_recipe(path, add_module(folder, marker))
    commands = [["sweep", path, "--resume"]]
    if keywords:
        commands.append(["sweep", "export", path, "best.yaml", "--trial", "0"])
        trial = path / "trials/0000"
        (trial / "resolved.yaml").write_text(LAKE)
    else:
        commands.append(
            ["sweep", path, "--resume", "--engine", "slurm", "--script", "a.sh"]
        )
        shutil.rmtree(path / "trials/0001")  # which a task of an array begins again
        commands.append(["study", path, "--cell", "trials/0001"])
    for words in commands:
        error = refused(*words, capsys=capsys)
        assert "`evil:make` would import code from outside rlcli" in error
        assert "pass `--trust` if you trust its source" in error
    assert not marker.exists()
    assert not Path("a.sh").exists()


@pytest.mark.usefixtures("engines")
def test_with_trust_the_recipe_of_a_sweep_imports_its_module(folder, marker):
    path = start()
    change_recipe(path, add_module(folder, marker))
    rlcli.sweep(path, resume=True, trust=True)
    assert marker.exists()


@pytest.mark.parametrize("text", ["evil:make", "name: evil:make"])
@pytest.mark.usefixtures("engines")
def test_a_trial_of_the_journal_sets_no_option_beyond_the_space(text, marker, capsys):
    """A choice of the journal becomes `--set`, which might name code."""
    space = {"optimizer": {"choice": ["adam", "sgd"]}}
    path = start(space=space, trials=2)
    lines = (path / "journal.log").read_text().splitlines()
    changed = [line.replace("sgd", text).replace("adam", text) for line in lines]
    (path / "journal.log").write_text("\n".join(changed) + "\n")
    error = refused("sweep", path, "--resume", "--trials", "4", capsys=capsys)
    assert "which the space has not" in error or "cannot be used" in error
    assert not marker.exists()


@pytest.fixture
def own_lake(folder, fresh_imports):
    """The recipe has an environment of the user's own."""
    (folder / "own_lake.py").write_text(
        "from rlcli.environments.native.toy_text import frozen_lake\n"
        "def lake():\n    return frozen_lake.frozen_lake()\n"
    )
    text = LAKE.replace("FrozenLakeNonSlippery-v0", "own_lake:lake")
    (folder / "lake.yaml").write_text(text)


@pytest.mark.usefixtures("engines", "own_lake")
@pytest.mark.parametrize("keywords", quick_first([{}, {"sampler": "tpe"}, POPULATION]))
def test_ones_own_sweep_continues_without_trust_as_it_was(keywords, folder, capsys):
    path = start(**keywords)
    assert is_signed(path)
    shutil.copytree(path, "copied")
    more = [] if keywords == POPULATION else ["--trials", "4"]
    assert main(["sweep", str(path), "--resume", "--quiet", *more]) == 0
    assert is_signed(path)  # with what it has added
    assert main(["sweep", "copied", "--resume", "--quiet"]) == 0
    change_settings(path, set=["network=linear"])
    error = refused("sweep", path, "--resume", capsys=capsys)
    assert "`own_lake:lake` would import code from outside rlcli" in error
    change_settings(path, set=[])
    assert is_signed(path)
    with (folder / "own_lake.py").open("a") as file:
        file.write("VALUE = 1\n")
    refused("sweep", path, "--resume", capsys=capsys)
    assert main(["sweep", str(path), "--resume", "--quiet", "--trust"]) == 0
    assert not is_signed(path)


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("trust", [False, True, None])
def test_the_processes_of_a_resumed_sweep_have_the_trust_of_its_user(
    trust, together, engines, monkeypatch
):
    path = start(trials=4, together=together)
    info = path / "trials/0000/run.json"
    fields = json.loads(info.read_text()) | {"status": "running", "imports": ["a:b"]}
    info.write_text(json.dumps(fields))  # its author may be another
    (path / "trials/0000/metrics.jsonl").write_text("")
    commands = []
    run = FakeEngine.start

    def keep(engine, job):
        commands.append(job.arguments)
        run(engine, job)

    monkeypatch.setattr(FakeEngine, "start", keep)
    entries = map(json.loads, (path / "journal.log").read_text().splitlines())
    ended = {"op_code": 6, "trial_id": 0, "state": 1}
    kept = [each for each in entries if not ended.items() <= each.items()]
    (path / "journal.log").write_text("")
    add_lines(path, *kept)
    rlcli.sweep(path, resume=True, trials=8, trust=trust)
    assert len(engines) == 2 and len(commands) >= 2
    for words in commands:
        assert words[: len(trust_option(trust)) + 2] == [
            *("study", *trust_option(trust), "--quiet")
        ]


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize(
    "url", ["sqlite:///{0}/new.db", "postgresql://192.0.2.1/x", "sqlite:///{0}/my.db"]
)
def test_a_folder_chooses_no_database(url, folder, capsys):
    path = start()
    (folder / "my.db").write_bytes(b"")
    url = url.format(folder)
    change_settings(path, storage=url)
    for words in (["show", path], [path, "--resume"]):
        error = refused("sweep", *words, capsys=capsys)
        assert "a folder cannot choose an address" in error
        assert "pass `--storage` again" in error
    assert not (folder / "new.db").exists()
    assert (folder / "my.db").read_bytes() == b""


@pytest.mark.usefixtures("engines")
def test_a_folder_chooses_no_store(folder, capsys):
    path = start()
    record = json.loads((path / "study.json").read_text())
    record["run_storage"] = {"url": f"file://{folder}/store", "name": "x"}
    (path / "study.json").write_text(json.dumps(record))
    error = refused("sweep", path, "--resume", capsys=capsys)
    assert "`--run-storage` " in error and "cannot choose an address" in error
    assert not (folder / "store").exists()


@pytest.mark.usefixtures("engines")
def test_a_database_is_shown_read_only_and_none_is_created(folder, capsys):
    url = "sqlite:///trials.db"
    path = start(storage=url)
    before = (folder / "trials.db").read_bytes()
    assert main(["sweep", "show", str(path), "--storage", url]) == 0
    assert (folder / "trials.db").read_bytes() == before
    capsys.readouterr()
    (folder / "trials.db").unlink()
    error = refused("sweep", "show", path, "--storage", url, capsys=capsys)
    assert "trials.db` cannot be opened: " in error
    assert not (folder / "trials.db").exists()


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("number", [-1, 0.5])
def test_a_trial_of_a_database_has_a_number(number, folder, capsys):
    """It is part of the path of a run; a column of SQLite may hold any value."""
    url = "sqlite:///trials.db"
    path = start(storage=url)
    with sqlite3.connect("trials.db") as database:
        database.execute("UPDATE trials SET number = ? WHERE trial_id = 1", (number,))
    database.close()
    error = refused("sweep", "show", path, "--storage", url, capsys=capsys)
    assert "a trial has the number" in error


NAMES = ["journal.log", "study.json", "result.json"]


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("name", [*NAMES, ".lock"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_file_of_a_sweep_is_read_or_written_through_a_link_or_a_pipe(
    name, kind, folder, capsys
):
    path, victim = start(), folder / "victim"
    text = (path / name).read_bytes() if name != ".lock" else b"precious"
    victim.write_bytes(text + b"precious")
    (path / name).unlink()
    if kind == "link":
        (path / name).symlink_to(victim)
    else:
        os.mkfifo(path / name)
    readers = [["sweep", "show", path]] if name in NAMES else []
    for words in [*readers, ["sweep", path, "--resume", "--trials", "3"]]:
        error = refused(*words, capsys=capsys)
        reason = "symbolic link" if kind == "link" else "not a regular file"
        assert reason in error and name in error
    assert victim.read_bytes() == text + b"precious"


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("name", ["trials", "trials/0002", "confirm", "slurm"])
def test_no_folder_of_a_sweep_is_used_through_a_link(name, folder, capsys):
    path, victim = start(trials=1, confirm=0), folder / "victim"
    victim.mkdir()
    (victim / "run.json").write_text('{"status": "running", "members": ["0002"]}')
    before = [*victim.iterdir()]
    if (path / name).exists():
        (path / name).rename(folder / "away")
    (path / name).symlink_to(victim)
    words = ["--resume", "--trials", "4", "--confirm", "1"]
    words += ["--engine", "slurm", "--script", "a.sh"] if name == "slurm" else []
    error = refused("sweep", path, *words, capsys=capsys)
    assert "symbolic link" in error and name in error
    assert [*victim.iterdir()] == before
    assert (victim / "run.json").read_text().startswith('{"status": "running", "mem')


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("keywords", [{}, POPULATION])
def test_show_writes_nothing(keywords, folder):
    path = start(**keywords)
    # As if the driver was killed before it had created the study.
    text = (path / "journal.log").read_text()
    (path / "result.json").unlink()
    for content in (text, ""):
        (path / "journal.log").write_text(content)
        before = {each: each.stat().st_mtime_ns for each in path.rglob("*")}
        rlcli.show_sweep(path)
        assert {each: each.stat().st_mtime_ns for each in path.rglob("*")} == before


@pytest.mark.usefixtures("engines")
@pytest.mark.slow
def test_a_damaged_winner_is_one_error(capsys):
    path = start(confirm=1)
    result = json.loads((path / "result.json").read_text())
    for key in result["winner"]:
        for value in (None, "x", [None], {"a": 1}, -1, "../../trials/0000"):
            winner = {**result["winner"], key: value}
            damaged = [winner, {k: v for k, v in winner.items() if k != key}]
            for each in damaged:
                (path / "result.json").write_text(json.dumps({"winner": each}))
                code = main(["sweep", "show", str(path)])
                error = capsys.readouterr().err
                assert code == (1 if error else 0)
                assert not error or "result.json` is damaged: `winner` is" in error
    winner = {**result["winner"], "trial": 99, "run": "trials/0099"}
    (path / "result.json").write_text(json.dumps({"winner": winner}))
    error = refused("sweep", "show", path, capsys=capsys)
    assert "result.json` is damaged: there is no trial 99" in error


VALUES = [None, True, -1, 10**30, 1.5, float("inf"), "", "x", "../..", [], [1], {}]
VALUES += [{"x": 1}, "evil:make", [None], "2026", "0001", {"0001": []}]


def places(value, place=()):
    """The places of all values of plain data."""
    yield place
    items = [*enumerate(value)] if isinstance(value, list) else []
    items = value.items() if isinstance(value, dict) else items
    for key, each in items:
        yield from places(each, (*place, key))


def damage(value, random):
    """The data with another value, or without one, at a random place."""
    *way, last = random.choice([*places(value)][1:])
    inner = value
    for key in way:
        inner = inner[key]
    if random.random() < 0.2:
        del inner[last]
    else:
        inner[last] = random.choice(VALUES)
    return value


def damage_file(path, random):
    """Changes a value in a file of JSON, or of lines of it, or its bytes."""
    text = path.read_text()
    if random.random() < 0.15:
        data = bytearray(text.encode())
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        path.write_bytes(
            data[: random.choice((len(data), random.randrange(len(data))))]
        )
    elif path.suffix == ".json":
        path.write_text(json.dumps(damage(json.loads(text), random)))
    else:
        lines = text.splitlines()
        index = random.randrange(len(lines))
        lines[index] = json.dumps(damage(json.loads(lines[index]), random))
        path.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize(
    "keywords",
    quick_first(
        [
            {"sampler": "tpe", "pruner": "asha", "trials": 12},
            {"sampler": "cmaes", "pruner": "median", "trials": 12},
            {"sampler": "nsga2", "trials": 4},
            POPULATION,
        ]
    ),
)
def test_a_damaged_sweep_is_one_clear_error_or_goes_on(
    keywords, engines, folder, marker, monkeypatch
):
    space = {"optimizer.learning_rate": {"log_uniform": [0.01, 1.0]}}
    if keywords is not POPULATION:
        space["updater.loss"] = {"choice": ["mse", "huber"]}
    path = start(space=space, confirm=1, **keywords)
    if keywords is POPULATION:
        write_rounds(path)
    for run in [*path.glob("trials/0*"), *path.glob("confirm/0*")]:
        (run / "resolved.yaml").write_text(LAKE)
    add_module(folder, marker)
    names = ["journal.log", "study.json", "study.json", "result.json"]
    names += ["trials/rounds.jsonl"] if keywords is POPULATION else []
    random, messages = Random(0), set()
    for number in range(60):
        copy = folder / f"copy{number}"
        shutil.copytree(path, copy)
        damage_file(copy / random.choice(names[:1] * 3 + names), random)
        for command in (
            lambda copy=copy: print_sweep(rlcli.show_sweep(copy), json=False),
            lambda copy=copy: rlcli.export_sweep(copy, folder / "a.yaml"),
            lambda copy=copy: rlcli.export_sweep(copy, folder / "a.yaml", trial=1),
            lambda copy=copy: rlcli.sweep(copy, resume=True, jobs=1, confirm=2),
        ):
            try:
                command()
            except RlcliError as error:
                assert len(error.message) < 1_000
                messages.add(error.message.replace(str(copy), ""))
        shutil.rmtree(copy)
    assert len(messages) > 15
    assert not marker.exists()


def write_rounds(path):
    """A round of a population in which the worst member copies the best one."""
    names = [f"{number:04d}" for number in range(4)]
    members = {
        name: {
            "score": float(index),
            "copied": names[3] if index == 0 else None,
            "options": {"optimizer.learning_rate": 0.1 + index / 10},
        }
        for index, name in enumerate(names)
    }
    line = {"round": 1, "step": 500, "members": members}
    (path / "trials/rounds.jsonl").write_text(json.dumps(line) + "\n")
