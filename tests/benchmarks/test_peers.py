"""Benchmarks with other libraries: the processes, and that both sides work alike."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import peers, purejaxrl, rejax, stable_baselines
from benchmarks.workers import purejaxrl as purejaxrl_worker
from benchmarks.workers import serve
from benchmarks.workers import stable_baselines as stable_baselines_worker
from rlcli.recipe import load_recipe, read_without_parts

ROOT = Path(__file__).parents[2]
WORKER = """
import os, sys
from benchmarks.workers.serve import serve

def run():
    print("a line of the library")
    if sys.argv[3:]:
        sys.exit(3)
    print(len(calls), file=open("calls", "w"))
    print(os.environ.get("NPROC"), file=open("threads", "w"))
    calls.append(1)

calls = [1]
serve(run)
"""


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """A folder of workers, with one named `counts`, as the working directory."""
    folder = tmp_path / "benchmarks" / "workers"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    shutil.copy(serve.__file__, folder)
    (folder / "counts.py").write_text(WORKER)
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_runs_once_per_call_and_ends_with_its_context(workers):
    with peers.start_worker(sys.executable, "counts", "dqn", 64, threads="1") as loop:
        assert loop.steps == 64
        for call in (1, 2):
            loop.advance(loop.steps)
            assert (workers / "calls").read_text() == f"{call}\n"


def test_a_worker_that_ends_is_an_error_with_its_exit_code(workers):
    with (
        pytest.raises(RuntimeError, match=r"`benchmarks.workers.counts` ended .* 3$"),
        peers.start_worker(sys.executable, "counts", "dqn", 64, "exit") as loop,
    ):
        loop.advance(loop.steps)


def test_the_fastest_number_of_threads_is_measured_with_calls(workers, monkeypatch):
    def measure(loop):
        loop.advance(loop.steps)
        return {"1": 0.5, "None": 0.25}[(workers / "threads").read_text().strip()]

    monkeypatch.setattr(peers.pairs, "measure", measure)

    def start(threads):
        return peers.start_worker(sys.executable, "counts", "dqn", 64, threads=threads)

    assert peers.fastest_threads(start) == ""
    assert (workers / "calls").read_text() == f"{peers.TRIALS}\n"


RECIPES = {
    **{f"rejax {work}": rejax.recipe_of(work) for work in rejax.STEPS},
    **{
        f"purejaxrl {work}": purejaxrl.recipe_of(work, purejaxrl.LOG_EVERY[0])
        for work in purejaxrl.STEPS
    },
    **{
        f"stable_baselines {work} {gymnasium}": stable_baselines.recipe_of(
            work, gymnasium=gymnasium
        )
        for work in stable_baselines.STEPS
        for gymnasium in (False, True)
    },
}


@pytest.mark.parametrize("data", RECIPES.values(), ids=RECIPES)
def test_every_recipe_of_a_comparison_is_valid(data):
    load_recipe(data, ["train.steps=100_000_000", "train.checkpoint=null"])


def test_purejaxrl_does_the_work_of_the_recipes():
    recipe, config = purejaxrl.RECIPES["ppo"], purejaxrl_worker.PPO
    assert config["NUM_ENVS"] == recipe["environment"]["num_envs"]
    assert config["NUM_STEPS"] == recipe["train"]["unroll"]
    assert config["UPDATE_EPOCHS"] == recipe["updater"]["epochs"]
    assert config["NUM_MINIBATCHES"] == recipe["updater"]["minibatches"]
    assert config["MAX_GRAD_NORM"] == recipe["optimizer"]["clip_norm"]
    iteration = config["NUM_ENVS"] * config["NUM_STEPS"]
    assert purejaxrl.STEPS["ppo"] % iteration == 0
    recipe, config = purejaxrl.RECIPES["dqn"], purejaxrl_worker.DQN
    assert config["NUM_ENVS"] == config["TRAINING_INTERVAL"] == 1  # rlcli's defaults
    assert config["BUFFER_SIZE"] == recipe["replay"]["capacity"]
    assert config["BUFFER_BATCH_SIZE"] == recipe["replay"]["batch_size"]
    assert config["TARGET_UPDATE_INTERVAL"] == recipe["updater"]["target"]["every"]


@pytest.mark.parametrize("work", stable_baselines.STEPS)
def test_stable_baselines_does_the_work_of_the_recipes(work):
    data = stable_baselines.recipe_of(work, gymnasium=True)
    recipe = read_without_parts(data, []).data
    name, num_envs, options = stable_baselines_worker.WORK[work]
    environment = recipe["environment"]
    assert environment["name"] == f"gymnasium/{name}"
    assert environment.get("num_envs", 1) == num_envs
    layers, stack = recipe["network"]["layers"], options["policy_kwargs"]["net_arch"]
    assert stack in (layers, {"pi": layers, "vf": layers})
    optimizer = recipe["optimizer"]
    optimizer = optimizer.get("policy", optimizer)  # Stable-Baselines3 has only one
    rate = optimizer["learning_rate"]
    assert options["learning_rate"] == (rate["from"] if type(rate) is dict else rate)
    if work.startswith("ppo"):
        iteration = options["n_steps"] * num_envs
        assert iteration == recipe["train"]["unroll"] * num_envs
        assert iteration // options["batch_size"] == recipe["updater"]["minibatches"]
        assert options["n_epochs"] == recipe["updater"]["epochs"]
        assert not any(
            steps % iteration for steps in stable_baselines.STEPS[work].values()
        )
    else:
        assert options["train_freq"] == options["gradient_steps"] == 1
        assert options["batch_size"] == recipe["replay"]["batch_size"]
        assert options["buffer_size"] == recipe["replay"]["capacity"]


def test_make_bench_has_packages_for_every_library():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    libraries = re.findall(r"^PACKAGES_(\w+) := .*==", makefile, re.MULTILINE)
    assert {*libraries} == {"rejax", "stable_baselines", "purejaxrl", "rl_zoo3"}
    for library in libraries:
        assert importlib.util.find_spec(f"benchmarks.{library}")
        assert importlib.util.find_spec(f"benchmarks.workers.{library}")
