"""Memory: what a run needs, by what the user can change."""

import jax
import pytest
from wording import mentions

import rlcli
from rlcli.assembly import build, memory_usage
from rlcli.loop import make_loop
from rlcli.recipe import dump_recipe, load_recipe, resolve
from rlcli.runs.creation import create_run
from rlcli.training.experiment.experiment import Experiment
from rlcli.xla import machine
from rlcli.xla.temporaries import tree_bytes

DATA = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [8]},
    "replay": {"name": "uniform", "capacity": 1_000, "batch_size": 4},
    "updater": "q_learning",
    "train": {"steps": 10_000, "seeds": 3, "devices": 1},
}
HOST = {**DATA, "environment": {"name": "gymnasium/CartPole-v1", "num_envs": 2}}
PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [8]},
    "updater": "ppo",
    "train": {"steps": 10_000, "unroll": 16, "evaluate": {"every": 1_000}},
}


def sizes_of(data, *sets):
    recipe = load_recipe(data, sets)
    setup = build(recipe)._replace(devices=1)
    loop = make_loop(setup)
    items = memory_usage.run_memory(recipe, setup, loop)
    return {item.name: item.size for item in items}, loop


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(DATA, id="replay"),
        pytest.param(HOST, id="host", marks=pytest.mark.slow),
        pytest.param(PPO, id="ppo", marks=pytest.mark.slow),
    ],
)
def test_what_a_run_keeps_is_all_counted_once(data):
    sizes, loop = sizes_of(data)
    kept = ("parameters and optimizer", "replay", "environments", "unroll")
    counted = sum(sizes.get(name, 0) for name in kept)
    progress = loop.begin()
    saved = loop.save(progress)
    real = tree_bytes(saved._replace(environment=()) if data is HOST else saved)
    loop.close(progress)
    assert counted == real


@pytest.mark.slow
def test_each_grows_with_the_option_that_it_names():
    sizes, _ = sizes_of(DATA)
    more, _ = sizes_of(DATA, "replay.capacity=2_000")
    assert more["replay"] == pytest.approx(2 * sizes["replay"], rel=0.01)
    more, _ = sizes_of(DATA, "environment.num_envs=4")
    assert more["environments"] > 1.8 * sizes["environments"]
    more, _ = sizes_of(DATA, "train.seeds=6")
    assert more["parameters and optimizer"] == 2 * sizes["parameters and optimizer"]
    more, _ = sizes_of(DATA, "network.layers=[80]")
    assert more["parameters and optimizer"] > 9 * sizes["parameters and optimizer"]
    more, _ = sizes_of(DATA, "replay.batch_size=400")
    assert more["random numbers"] > 10 * sizes["random numbers"]
    assert more["temporaries of the program"] > 10 * sizes["temporaries of the program"]
    sizes, _ = sizes_of(PPO)
    more, _ = sizes_of(PPO, "train.unroll=32")
    assert more["unroll"] == pytest.approx(2 * sizes["unroll"], rel=0.01)
    more, _ = sizes_of(PPO, "train.evaluate.episodes=2000")
    assert more["evaluation"] > sizes["evaluation"]


@pytest.mark.slow
def test_environments_on_the_host_are_counted_before_they_are_made():
    sizes, _ = sizes_of(HOST, "environment.num_envs=200", "replay.capacity=100_000")
    assert sizes["environments on the host"] >= 600 * 2_000
    sets = ["environment.vectorization=async", "environment.num_envs=20"]
    sizes, _ = sizes_of(HOST, *sets)
    assert sizes["processes on the host"] >= 60 * 16 * 2**20


@pytest.fixture
def small_machine(monkeypatch, tmp_path_factory):
    """A machine with 1 GiB available; its files are as Linux has them."""
    root = tmp_path_factory.mktemp("root")
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemAvailable: 1048576 kB\n")
    real = machine.available_memory
    monkeypatch.setattr(machine, "available_memory", lambda: real(root))


LARGE = {
    "network.layers": (DATA, ["network.layers=[20_000,20_000]"]),
    "replay.capacity": (DATA, ["replay.capacity=1_000_000_000"]),
    "replay.batch_size": (
        DATA,
        ["replay.batch_size=5_000_000", "replay.capacity=5_000_000"],
    ),
    "train.seeds": (DATA, ["train.seeds=1_000_000"]),
    "train.unroll": (PPO, ["train.unroll=20_000_000", "train.steps=100_000_000"]),
    "environment.num_envs": (
        PPO,
        ["environment.num_envs=10_000_000", "train.steps=1_000_000_000"],
    ),
    "train.evaluate.episodes": (PPO, ["train.evaluate.episodes=1_000_000_000"]),
}


@pytest.mark.slow  # quick for `replay.capacity`, in the next test
@pytest.mark.parametrize("option", LARGE)
def test_a_run_that_needs_more_than_there_is_leaves_no_folder(
    option, small_machine, tmp_path
):
    data, sets = LARGE[option]
    with pytest.raises(rlcli.RlcliError) as caught:
        rlcli.train(data, set=sets, runs=tmp_path, quiet=True)
    assert f"`{option}`" in caught.value.hint
    assert "this run needs" in caught.value.message
    assert "1.0 GiB are available" in caught.value.message
    assert "\n" not in caught.value.message + caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_error_says_how_much_of_what_and_which_value_would_fit(
    small_machine, tmp_path
):
    sets = ["replay.capacity=10_000_000"]
    with pytest.raises(rlcli.RlcliError) as caught:
        rlcli.train(DATA, set=sets, runs=tmp_path, quiet=True)
    assert mentions(
        caught.value.message,
        "1.5 GiB",
        "1.0 GiB",
        "1.3 GiB",
        "3 seeds",
        "10,000,000 rows",
        "46 B",
        "200.0 MiB",
    )
    assert mentions(
        caught.value.hint, "`replay.capacity`", "6,200,000", "`train.seeds`", "(1 "
    )
    assert list(tmp_path.iterdir()) == []
    rlcli.check([{**DATA, "replay": {"name": "uniform", "capacity": 6_200_000}}])


@pytest.mark.slow
def test_seeds_repeated_for_the_devices_are_counted(small_machine):
    data = {**DATA, "train": {**DATA["train"], "devices": 2}}
    with pytest.raises(rlcli.RlcliError) as caught:
        rlcli.check([{**data, "replay": {"name": "uniform", "capacity": 10_000_000}}])
    detail = "replay 1.7 GiB (4 seeds (1 repeated, for 2 devices) × 10,000,000 rows"
    assert detail in caught.value.message


@pytest.mark.slow
def test_check_refuses_what_train_refuses_and_says_what_is_needed(small_machine):
    with pytest.raises(rlcli.RlcliError, match="this run needs"):
        rlcli.check([{**DATA, "replay": {"name": "uniform", "capacity": 10_000_000}}])
    (report,) = rlcli.check([DATA])
    sizes, loop = sizes_of(DATA)
    assert report["peak_memory"].pop("total") == sum(sizes.values())
    words = {name.replace(" ", "_"): size for name, size in sizes.items() if size}
    assert report["peak_memory"] == words
    # Of one seed; two numbers of 4 bytes are shared by all seeds.
    assert report["memory"] == (tree_bytes(loop.shapes()) - 8) // 3 + 8


@pytest.mark.slow
def test_resume_refuses_before_it_reads_a_checkpoint(tmp_path, monkeypatch):
    recipe = load_recipe(DATA)
    experiment = Experiment(recipe, build(recipe)._replace(devices=1))
    experiment.program.begin()
    run = create_run("mine", run=tmp_path / "run")
    run.resolved_recipe.write_text(dump_recipe(resolve(recipe)), encoding="utf-8")
    experiment.save_checkpoint(run)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.lz4")}
    few = machine.Available(2**20, "physical memory")
    monkeypatch.setattr(machine, "available_memory", lambda: few)
    with pytest.raises(rlcli.RlcliError, match=r"this run needs .* 1\.0 MiB are"):
        rlcli.resume(run.folder, quiet=True)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.lz4")}


def test_counting_allocates_nothing():
    before = sum(each.nbytes for each in jax.live_arrays())
    recipe = load_recipe(DATA, ["replay.capacity=100_000_000"])
    setup = build(recipe)._replace(devices=1)
    memory_usage.run_memory(recipe, setup, make_loop(setup))
    assert sum(each.nbytes for each in jax.live_arrays()) - before < 2**20
