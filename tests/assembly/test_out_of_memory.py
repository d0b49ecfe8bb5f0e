"""Out of memory: forged files are refused, and allocations that fail are explained."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli import recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.recipe.settings import apply_settings
from rlcli.runs import checkpoint
from rlcli.runs.creation import create_run
from rlcli.runs.files import read_json
from rlcli.training.experiment.experiment import Experiment
from rlcli.training.experiment.program import Program
from rlcli.xla import machine

DATA = {
    "environment": {"name": "bsuite/DeepSea", "size": 3},
    "network": "table",
    "replay": {"name": "uniform", "capacity": 32, "batch_size": 4},
    "updater": "q_learning",
    "train": {"steps": 200, "start": 10, "log": None, "checkpoint": None},
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    """The policy file of a run that has only begun: about a kilobyte."""
    parsed = recipe.load_recipe(DATA)
    experiment = Experiment(parsed, build(parsed))
    experiment.program.begin()
    run = create_run("sea", run=tmp_path_factory.mktemp("runs") / "sea")
    experiment.save_checkpoint(run)
    assert run.policy.stat().st_size < 2_000
    return run.policy


@pytest.fixture
def forged(policy, tmp_path):
    """Makes the same file with another recipe."""

    def forge(*sets):
        content = checkpoint.read(policy)
        document = documents.load_document(content["recipe"])
        content["recipe"] = recipe.dump_recipe(apply_settings(document, sets).data)
        checkpoint.write(tmp_path / "policy.pkl.lz4", content)
        return tmp_path / "policy.pkl.lz4"

    return forge


@pytest.fixture
def limited():
    """Half a GiB to allocate, whatever the machine has."""
    page, pages = resource.getpagesize(), Path("/proc/self/statm").read_text().split()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(pages[5]) * page + 2**29
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize(
    "sets",
    [
        ["replay.capacity=1_000_000_000"],
        pytest.param(["train.seeds=1_000_000"], marks=pytest.mark.slow),
        pytest.param(
            ["replay.batch_size=1_000_000_000", "replay.capacity=1_000_000_000"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [
                "environment.num_envs=500_000_000",
                "replay.capacity=1_000_000_000",
                "train.steps=1_000_000_000_000",
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["capacity", "seeds", "batch_size", "num_envs"],
)
@pytest.mark.usefixtures("limited")
def test_what_acting_does_not_need_costs_nothing(forged, sets):
    report = rlcli.eval(forged(*sets), episodes=2)
    assert report["episodes"] == 2


@pytest.mark.parametrize("verb", [rlcli.eval, rlcli.render])
@pytest.mark.usefixtures("limited")
def test_an_environment_that_does_not_fit_is_refused(forged, verb, tmp_path):
    path = forged("environment.size=50_000")
    with pytest.raises(RlcliError, match=r"cannot be built in .* 18\.6 GiB") as caught:
        verb(path)
    assert mentions(caught.value.hint, "`environment.size`", "(50,000)")
    assert list(tmp_path.iterdir()) == [path]


def test_parameters_that_the_file_does_not_hold_are_not_made_up(forged):
    path = forged("network={name: mlp, layers: [100_000_000]}")
    with pytest.raises(RlcliError, match="does not match its recipe"):
        rlcli.eval(path, episodes=2)


def test_more_episodes_than_fit_are_refused(policy):
    with pytest.raises(
        RlcliError, match=r"this policy needs .*TiB of memory, but only"
    ) as e:
        rlcli.eval(policy, episodes=10**12)
    assert "`--episodes`" in e.value.hint


@pytest.mark.usefixtures("fresh_imports")
def test_an_observation_on_the_host_that_does_not_fit_is_refused(folder, monkeypatch):
    """Its shape is enough to say so: no observation is made."""
    (folder / "many_bits.py").write_text(
        "import gymnasium\n"
        "class Bits(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.MultiBinary(10**11)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
    )
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(RlcliError, match=r"an array of 100,000,000,000 × .* param"):
        rlcli.check({**DATA, "environment": "many_bits:Bits", "network": "mlp"})


def test_a_file_that_claims_more_than_fits_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "c.pkl.lz4"
    checkpoint.write(path, np.zeros(10**7, np.uint8))
    assert path.stat().st_size < 10**5
    few = machine.Available(10**7, "physical memory")
    monkeypatch.setattr(checkpoint, "available_memory", lambda: few)
    with pytest.raises(RlcliError, match=r"reading `.*` needs 19\.. MiB of memory"):
        checkpoint.read(path)


@pytest.mark.slow
def test_a_run_whose_first_allocation_fails_leaves_no_folder(tmp_path):
    # A machine that does not say what it has: the allocation itself has to fail.
    program = f"""
import sys, resource
import rlcli
from rlcli.xla import machine
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, resource.RLIM_INFINITY))
machine.available_memory = lambda: None
sets = ["replay.capacity=200_000_000", "train.seeds=1"]
try:
    rlcli.train("dqn_cartpole", set=sets, quiet=True, runs={str(tmp_path)!r})
except rlcli.RlcliError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    message, hint = result.stdout.strip().split("\n\n")
    assert message.startswith("this run ran out of memory: Out of memory allocating")
    assert "it needs at least 8.8 GiB: replay 8.6 GiB (1 seed × 200,000,000" in message
    assert hint == "hint: lower `replay.capacity` or `train.seeds`"
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chunks", [0, 2])
@pytest.mark.slow
def test_a_run_that_runs_out_of_memory_later_is_recorded(chunks, tmp_path, monkeypatch):
    advance, made = Program.advance, []

    def failing(self, points):
        if len(made) == chunks:
            np.empty(2**62, np.uint8)  # NumPy's own error
        made.append(points)
        return advance(self, points)

    monkeypatch.setattr(Program, "advance", failing)
    with pytest.raises(RlcliError, match=r"ran out of memory: Unable to allocate 4"):
        rlcli.train(DATA, run=tmp_path / "run", quiet=True)
    if chunks == 0:
        assert list(tmp_path.iterdir()) == []
    else:
        info = read_json(tmp_path / "run" / "run.json")
        assert info["status"] == "failed"
        assert info["reason"].startswith("this run ran out of memory: Unable")


def test_other_errors_of_jax_stay_what_they_are():
    import jax

    from rlcli.assembly.out_of_memory import explain_out_of_memory

    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"),
        explain_out_of_memory("this run"),
    ):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
