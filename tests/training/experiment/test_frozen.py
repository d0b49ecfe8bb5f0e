"""Frozen seeds: a run says everywhere which of its seeds have failed, and why."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from folders import snapshot

import rlcli
from rlcli import errors
from rlcli.cli import main, training_outcome
from rlcli.loop.progress import RESET, stream_key
from rlcli.runs import checkpoint
from rlcli.runs.frozen import FrozenSeed
from rlcli.runs.snapshots import load_snapshot
from rlcli.types import Core, TimeStep

pytestmark = pytest.mark.slow

SEEDS, FIRST, AT = 3, 20, 31  # one seed of three is paid what is no number at step 31


def luck_of(seed: int) -> float:
    """What the first episode of a seed's only environment begins with."""
    key = jax.random.fold_in(stream_key(seed, RESET), 0)
    return float(jax.random.uniform(key))


BAD = FIRST + 1
OTHERS = [FIRST, FIRST + 2]
LUCK = luck_of(BAD)


def core(spoils: str = "reward") -> Core:
    """Pays its luck at every step; one seed is shown, or paid, a NaN at step 31."""

    def reset(key):
        return (jax.random.uniform(key), jnp.int32(0)), jnp.zeros(1)

    def step(state, action, noise):
        luck, time = state[0], state[1] + 1
        bad = (jnp.abs(luck - LUCK) < 1e-6) & (time == AT)
        nan = jnp.where(bad, jnp.nan, 0.0)
        obs = jnp.ones(1) + (nan if spoils == "observation" else 0.0)
        paid = luck + (nan if spoils == "reward" else 0.0)
        going = jnp.bool_(False)
        return (luck, time), TimeStep(obs, obs, paid, jnp.float32(1), going, {})

    return Core(
        reset,
        step,
        gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        gymnasium.spaces.Discrete(2),
        lambda state: np.zeros((8, 8, 3), np.uint8),
        draw=lambda key: (),
    )


def blind() -> Core:
    """The one that is shown a NaN."""
    return core("observation")


RECIPE = {
    "environment": {"name": f"{__name__}:core", "time_limit": 40},
    "network": {"name": "mlp", "layers": [4]},
    "updater": "q_learning",
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "train": {
        "steps": 60,
        "seed": FIRST,
        "seeds": SEEDS,
        "log": {"every": 10},
        "evaluate": {"every": 10, "episodes": 1},
        "checkpoint": {"every": 20, "keep": 9},
    },
}
REASON = (
    "the loss is not finite at update 30, by step 31: environment "
    f"`{__name__}:core` returned a reward that is not finite (environment 0, step 31)"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, int, str]:
    """A run of three seeds, with its exit code and what it err."""
    folder = tmp_path_factory.mktemp("frozen")
    (folder / "mine.yaml").write_text(json.dumps(RECIPE))
    err, code = run_cli("train", folder / "mine.yaml", "--run", folder / "run")
    return folder / "run", code, err


def run_cli(*arguments: object) -> tuple[str, int]:
    """What a command says on stderr and stdout, and its exit code."""
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        code = main([str(each) for each in arguments])
    return out.getvalue(), code


def info(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


def test_the_exit_code_of_a_run_with_frozen_seeds_is_neither_success_nor_failure(
    trained,
):
    _, code, err = trained
    assert code == errors.SOME_SEEDS_FROZEN == 3
    assert f"\nwarning: 1 of 3 seeds is frozen: seed {BAD}: {REASON}\n" in err
    assert f"\nhint: make environment `{__name__}:core` return finite numbers" in err
    assert err.count(f"seed {BAD} is frozen") == 1
    assert err.count("returned a reward") == 2  # when it happened, and at the end


def test_run_json_names_the_frozen_seeds_though_the_run_is_finished(trained):
    run, _, _ = trained
    facts = info(run)
    assert facts["status"] == "finished"
    assert facts["frozen"] == {str(BAD): REASON}
    assert facts["reason"] == f"1 of 3 seeds is frozen: seed {BAD}: {REASON}"
    assert "return finite numbers" in facts["hint"]


def test_the_best_policy_of_a_seed_is_none_from_after_it_was_frozen(trained):
    run, _, _ = trained
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "evaluation" in row]
    means = {row["T"]: row["evaluation"]["mean"] for row in rows if row["seed"] == BAD}
    sound = max(means[step] for step in (10, 20, 30))
    assert max(means[step] for step in (40, 50, 60)) > sound  # or nothing is tested
    best = json.loads((run / "checkpoints.json").read_text())["best"]
    assert best[str(BAD)]["return"] == sound
    assert best[str(BAD)]["frozen"] == REASON
    assert all("frozen" not in best[str(seed)] for seed in OTHERS)
    marked = {(row["T"], row["seed"]) for row in rows if "frozen" in row}
    assert marked == {(step, BAD) for step in (40, 50, 60)}


@pytest.mark.parametrize("name", ["policy", "best", "checkpoints/000000060"])
def test_a_file_alone_says_which_of_its_seeds_are_frozen(name, trained, tmp_path):
    run, _, _ = trained
    path = tmp_path / "elsewhere.pkl.lz4"
    shutil.copy(run / f"{name}.pkl.lz4", path)
    assert load_snapshot(path, trust=True).frozen == {BAD: FrozenSeed(31, REASON, True)}


def test_a_file_from_before_the_failure_has_no_frozen_seed(trained):
    run, _, _ = trained
    path = run / "checkpoints" / "000000020.pkl.lz4"
    assert load_snapshot(path, trust=True).frozen == {}
    assert "frozen" not in checkpoint.read(path)


@pytest.mark.parametrize("options", [[], ["--best"]])
def test_eval_marks_frozen_seeds_and_says_that_they_are_included(options, trained):
    run, _, _ = trained
    err, code = run_cli("eval", run, "--trust", "--episodes", 2, *options)
    assert code == 0
    assert "warning: 1 of 3 seeds is frozen in `" in err
    assert "mean, IQM and interval include all seeds" in err
    rows = [line.split() for line in err.splitlines()]
    assert ["seed", "mean", "std", "min", "max", "length", "frozen"] in rows
    ends = {row[0]: " ".join(row[6:]) for row in rows if len(row) > 6}
    assert ends[str(BAD)] == "at step 31"
    assert all(ends[str(seed)] == "no" for seed in OTHERS)
    assert f"seed {BAD} is frozen: {REASON}\n" in err
    assert " over 3 seeds (1 frozen, included) of 2 episodes on " in err


def test_the_json_of_eval_marks_frozen_seeds(trained):
    run, _, _ = trained
    found = rlcli.eval(run, trust=True, episodes=2)
    marks = {row["seed"]: row["frozen"] for row in found["seeds"]}
    frozen = {"step": 31, "reason": REASON}
    assert marks == {**dict.fromkeys(OTHERS), BAD: frozen}
    assert found["return"]["frozen"] == 1
    means = [row["mean"] for row in found["seeds"]]
    assert found["return"]["mean"] == pytest.approx(np.mean(means))


def left(run: Path, source: Path, step: int) -> Path:
    """A copy of the run that was killed after the checkpoint of a step."""
    shutil.copytree(source, run)
    for path in (run / "checkpoints").iterdir():
        if path.name > f"{step:09d}.pkl.lz4":
            path.unlink()
    (run / "checkpoints.json").unlink()
    return run


@pytest.mark.parametrize("step", [20, 40])
def test_a_resumed_run_has_the_same_frozen_seeds(step, trained, tmp_path):
    source, _, _ = trained
    run = left(tmp_path / "run", source, step)
    (run / "run.json").write_text(json.dumps({**info(run), "status": "running"}))
    err, code = run_cli("resume", run, "--trust")
    assert code == errors.SOME_SEEDS_FROZEN
    # A seed that was frozen before is no news.
    assert err.count(f"seed {BAD} is frozen") == (step < 31)
    for key in ("status", "reason", "frozen", "hint"):
        assert info(run)[key] == info(source)[key]
    for name in ("policy.pkl.lz4", "checkpoints/000000060.pkl.lz4"):
        assert (run / name).read_bytes() == (source / name).read_bytes()


def test_a_finished_run_with_frozen_seeds_is_no_success_when_resumed(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "run")
    err, code = run_cli("resume", run, "--trust", "--quiet")
    assert code == errors.SOME_SEEDS_FROZEN
    assert err.startswith(f"warning: 1 of 3 seeds is frozen: seed {BAD}: ")


def failed(environment, tmp_path, **changes) -> tuple[Path, list[str]]:
    """A run with another environment or other sections, and its warnings."""
    data = {**RECIPE, "environment": environment, **changes}
    data["train"] = {**RECIPE["train"], "evaluate": None, **changes.get("train", {})}
    run = rlcli.train(data, run=tmp_path / "run", quiet=True)
    lines = (run / "log.txt").read_text().splitlines()
    return run, [line for line in lines if "returned" in line and ", dt: " not in line]


def test_an_observation_that_is_no_number_is_the_environments(tmp_path):
    run, err = failed({"name": f"{__name__}:blind", "time_limit": 40}, tmp_path)
    reason = info(run)["frozen"][str(BAD)]
    assert reason.endswith(
        f"by step 31: environment `{__name__}:blind` returned an observation that is "
        "not finite (environment 0, step 31)"
    )
    assert err == [f"[TrainMonitor|INFO] seed {BAD} is frozen: {reason}"]


def test_a_run_that_ends_at_the_first_frozen_seed_does_not_say_that_none_is_left(
    tmp_path, capsys
):
    run, _ = failed(RECIPE["environment"], tmp_path, train={"on_nan": "stop"})
    assert info(run)["status"] == "failed"
    assert info(run)["reason"].startswith("1 of 3 seeds is frozen: seed 21: the loss")
    assert info(run)["reason"].endswith("; `train.on_nan` is `stop`")
    before = snapshot(run)
    rlcli.resume(run, trust=True)  # cannot make another step
    assert snapshot(run) == before
    assert training_outcome.report_training(run, quiet=True) == errors.USER_ERROR
    assert "`train.on_nan` is `stop`" in capsys.readouterr().err


class Spoils(gymnasium.Env):
    """Returns `value` at the 15th step of every episode, as observation or reward."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what: str, value: float | str | None) -> None:
        self.what, self.value = what, value

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        obs, reward = np.zeros(2, np.float32), 1.0
        if self.time == 15 and self.what == "reward":
            reward = self.value
        elif self.time == 15:
            obs[1] = self.value
        return obs, reward, False, False, {}


NAME = "tests/Spoils-v0"
gymnasium.register(NAME, entry_point=Spoils, max_episode_steps=20)


def hosted(what: str, value: object, tmp_path: Path, **train) -> tuple[Path, list[str]]:
    environment = {
        "name": f"gymnasium/{NAME}",
        "num_envs": 2,
        "options": {"what": what, "value": value},
    }
    return failed(environment, tmp_path, train={"seeds": 1, **train})


def test_a_nan_of_a_host_environment_is_attributed_to_the_environment(tmp_path):
    run, err = hosted("observation", float("nan"), tmp_path)
    place = "(environment 0, step 30)"  # of both environments, in step 15 of each
    assert info(run)["frozen"]["20"].endswith(
        f"by step 30: environment `gymnasium/{NAME}` returned an observation that is "
        f"not finite {place}"
    )
    assert len(err) == 1


def test_an_observation_beyond_its_bounds_is_warned_of_once_and_trained_on(tmp_path):
    run, err = hosted("observation", 1.5, tmp_path)
    assert info(run)["status"] == "finished"
    assert info(run)["frozen"] == {}
    assert err == [
        f"[TrainMonitor|INFO] environment `gymnasium/{NAME}` returned an observation "
        "outside its declared space Box(2,) in [-1, 1] (seed 20, environment 0, "
        "step 30); it is used unchanged, and this warning is not repeated"
    ]
    rlcli.resume(run, set=["train.steps=100"], quiet=True)
    assert (run / "log.txt").read_text().count("outside its declared") == 1


def test_a_reward_that_is_no_number_ends_the_run_and_is_recorded(tmp_path):
    with pytest.raises(
        rlcli.RlcliError, match="a reward that is not a number"
    ) as caught:
        hosted("reward", "a lot", tmp_path)
    facts = info(tmp_path / "run")
    assert facts["status"] == "failed"
    assert facts["reason"] == caught.value.message
    assert (
        "(number 0 of seed 20, episode 0, step 15): `step` returned " in facts["reason"]
    )
