"""A run starts from what another has learned: what it takes, and what is refused."""

import contextlib
import hashlib
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from wording import mentions

import rlcli
from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.runs import checkpoint
from rlcli.runs.creation import create_run
from rlcli.runs.run_folder import Run
from rlcli.training.experiment.together import build_experiments, read_initial


@contextlib.contextmanager
def refuses(*words: str):
    """Expects an error with all words."""
    with pytest.raises(RlcliError) as error:
        yield
    text = str(error.value)
    assert all(mentions(text, word) for word in words), text


NETWORK = {"name": "mlp", "layers": [6, 5]}
DQN = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": NETWORK,
    "replay": {"name": "uniform", "capacity": 32, "batch_size": 4},
    "updater": {"name": "dqn", "target": {"every": 10}},
    "optimizer": "adam",
    "train": {"steps": 1_000, "seeds": 2, "seed": 3},
}
PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": NETWORK,
    "updater": "ppo",
    "train": {"steps": 1_000, "unroll": 8, "seeds": 2, "seed": 3},
}
NORMALIZED = {**PPO, "normalize": {"observation": True, "reward": True}}


def begin(data, sets=(), seeds=None):
    """The agent's state at the start of a run, by tree path, `[S, ...]`."""
    parsed = recipe.load_recipe(data, sets)
    train = parsed.train
    seeds = seeds or range(train.seed, train.seed + train.seeds)
    (experiment,) = build_experiments([parsed], seeds, is_new=True)
    experiment.program.begin()
    return experiment, checkpoint.flatten_tree(experiment.program.progress.agent)


def save_source(folder: Path, data, change=lambda path, leaf: leaf, seeds=None) -> Path:
    """A run whose checkpoint has changed arrays: those of its start are not learned."""
    experiment, _ = begin(data, seeds=seeds)
    run = create_run("source", run=folder)
    experiment.save_checkpoint(run)
    for path in (run.latest_checkpoint(), run.policy):
        content = checkpoint.read(path)
        key = "progress" if content["kind"] == "checkpoint" else "acting"
        content[key] = {p: change(p, leaf) for p, leaf in content[key].items()}
        checkpoint.write(path, content)
    return folder


def add_one(path: str, leaf: np.ndarray) -> np.ndarray:
    """Makes parameters that no initialization gives."""
    is_learned = path.startswith(("agent/learner", "q/", "policy/", "value/"))
    return leaf + 1 if is_learned and leaf.dtype == np.float32 else leaf


@pytest.fixture(scope="module")
def dqn(tmp_path_factory) -> Path:
    """Two seeds of DQN, 3 and 4."""
    return save_source(tmp_path_factory.mktemp("sources") / "dqn", DQN, add_one)


@pytest.fixture(scope="module")
def ppo(tmp_path_factory) -> Path:
    return save_source(tmp_path_factory.mktemp("sources") / "ppo", PPO, add_one)


@pytest.fixture(scope="module")
def normalized(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sources") / "normalized"
    return save_source(folder, NORMALIZED, add_one)


def learned(folder: Path) -> dict[str, np.ndarray]:
    """The agent's state in the checkpoint of a run."""
    progress = checkpoint.read(Run(folder).latest_checkpoint())["progress"]
    prefix = "agent/"
    return {
        path.removeprefix(prefix): leaf
        for path, leaf in progress.items()
        if path.startswith(prefix)
    }


def assert_equal(ours, theirs, prefix: str) -> None:
    paths = [path for path in ours if path.startswith(prefix)]
    assert paths
    for path in paths:
        np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)


def assert_differ(ours, theirs, prefix: str) -> None:
    paths = [path for path in ours if path.startswith(prefix)]
    assert paths
    assert all(not np.array_equal(ours[path], theirs[path]) for path in paths)


def test_each_seed_starts_from_its_own_seed_of_the_source(dqn):
    _, start = begin(DQN, [f"init.from={dqn}"], seeds=(4, 3))
    theirs = learned(dqn)
    for path in (p for p in start if p.startswith("learner/params")):
        np.testing.assert_array_equal(start[path], theirs[path][::-1], err_msg=path)


@pytest.mark.slow
def test_one_seed_of_the_source_starts_all(dqn):
    sets = [f"init.from={dqn}", "init.seed=4"]
    _, start = begin(DQN, sets, seeds=(0, 7, 9))
    for path in (p for p in start if p.startswith("learner/params")):
        for row in start[path]:
            np.testing.assert_array_equal(row, learned(dqn)[path][1], err_msg=path)


def test_a_target_starts_as_a_copy_and_the_optimizer_anew(dqn):
    _, start = begin(DQN, [f"init.from={dqn}"])
    for path in (p for p in start if p.startswith("learner/target/")):
        params = path.replace("target/", "params/")
        np.testing.assert_array_equal(start[path], start[params])
    moments = [p for p in start if p.startswith("learner/optimizer/")]
    assert moments
    assert not any(start[path].any() for path in moments)


@pytest.mark.slow
def test_the_policy_to_stay_near_is_that_of_the_source(ppo):
    kl = {
        "name": "kl",
        "to": "initial",
        "weight": {"from": 0.5, "to": 0, "over": "50%"},
    }
    data = {**PPO, "updater": {"name": "ppo", "regularizers": [kl]}}
    _, start = begin(data, [f"init.from={ppo}"])
    paths = [p for p in start if p.startswith("learner/initial/policy/")]
    assert paths
    for path in paths:
        theirs = learned(ppo)[path.replace("initial/", "params/")]
        np.testing.assert_array_equal(start[path], theirs, err_msg=path)


@pytest.mark.slow
def test_the_first_action_is_that_of_the_source(tmp_path):
    def prefer_the_second(path, leaf):
        is_bias = path.endswith("policy/linear_2/b")
        return leaf + np.float32([0, 1e3]) if is_bias else leaf

    source = save_source(tmp_path / "source", PPO, prefer_the_second)
    experiment, _ = begin(PPO, [f"init.from={source}"])
    assert np.all(experiment.program.progress.pending.action == 1)


@pytest.mark.slow
def test_without_heads_only_the_torso_is_taken(ppo):
    sets = [f"init.from={ppo}", "init.keep_head=false"]
    _, start = begin(PPO, sets)
    _, fresh = begin(PPO)
    for group in ("policy", "value"):
        prefix = f"learner/params/{group}/linear"
        assert_equal(start, learned(ppo), f"{prefix}/")
        assert_equal(start, learned(ppo), f"{prefix}_1/")
        assert_equal(start, fresh, f"{prefix}_2/")
    acrobot = {**PPO, "environment": {"name": "Acrobot-v1", "num_envs": 2}}
    with refuses("policy/linear/w: float32[6, 6] here, float32[4, 6] there"):
        begin(acrobot, sets)


@pytest.mark.slow
def test_the_torso_of_another_group_can_be_taken_by_name(dqn):
    parts = "init.parts={policy/torso: q/torso}"
    _, start = begin(PPO, [f"init.from={dqn}", parts])
    _, fresh = begin(PPO)
    for layer in ("linear", "linear_1"):
        for name in ("w", "b"):
            np.testing.assert_array_equal(
                start[f"learner/params/policy/{layer}/{name}"],
                learned(dqn)[f"learner/params/q/{layer}/{name}"],
            )
    assert_equal(start, fresh, "learner/params/policy/linear_2/")
    assert_equal(start, fresh, "learner/params/value/")


@pytest.mark.slow
def test_a_shared_torso_is_a_group_of_its_own(tmp_path):
    shared = {**PPO, "network": {"shared": NETWORK, "policy": {}, "value": {}}}
    source = save_source(tmp_path / "source", shared, add_one)
    sets = [f"init.from={source}", "init.keep_head=false"]
    _, start = begin(shared, sets)
    _, fresh = begin(shared)
    assert_equal(start, learned(source), "learner/params/shared/")
    assert_equal(start, fresh, "learner/params/policy/")
    with refuses("policy", "no torso", "shared"):
        begin(shared, [f"init.from={source}", "init.parts=[policy/torso]"])


@pytest.mark.slow
def test_statistics_of_observations_are_taken_with_the_parameters(normalized):
    _, start = begin(NORMALIZED, [f"init.from={normalized}"])
    theirs = learned(normalized)
    assert_equal(start, theirs, "learner/statistics/observation/")
    assert_equal(start, theirs, "learner/statistics/returns/")
    assert_equal(start, theirs, "learner/learner/params/")
    running = "learner/statistics/running"  # the returns of episodes that are not its
    assert not start[running].any()
    assert theirs[running].any()


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.slow
def test_networks_that_read_other_observations_are_refused(ppo, normalized, is_here):
    data, source = (NORMALIZED, ppo) if is_here else (PPO, normalized)
    with refuses("init.normalization=false", "observation", "nothing"):
        begin(data, [f"init.from={source}"])
    _, start = begin(data, [f"init.from={source}", "init.normalization=false"])
    assert any(path.endswith("params/policy/linear/w") for path in start)


@pytest.mark.slow
def test_the_optimizer_is_taken_where_it_is_the_same(dqn):
    sets = [f"init.from={dqn}", "init.optimizer=true"]
    _, start = begin(DQN, sets)
    assert_equal(start, learned(dqn), "learner/optimizer/")
    with refuses("init.optimizer=false", "0/mu/q"):
        begin({**DQN, "optimizer": "sgd"}, sets)
    with refuses("optimizer", "all groups"):
        begin(DQN, [*sets, "init.parts=[q]"])


def test_everything_that_differs_is_listed_in_one_error(ppo):
    wider = {
        **PPO,
        "network": {"policy": {**NETWORK, "layers": [6, 9]}, "value": NETWORK},
    }
    with pytest.raises(RlcliError) as error:
        begin(wider, [f"init.from={ppo}"])
    for text in (
        *("policy/linear_1/w: float32[6, 9] here, float32[6, 5] there",),
        *("policy/linear_1/b: float32[9] here, float32[5] there",),
        *("policy/linear_2/w: float32[9, 2] here, float32[5, 2] there",),
        "`init.parts=[value]`",
    ):
        assert text in str(error.value)
    assert "value/linear" not in str(error.value)


def test_other_heads_name_the_option_without_them(ppo):
    data = {**PPO, "environment": {"name": "MountainCar-v0", "num_envs": 2}}
    data["network"] = {**NETWORK}
    with pytest.raises(RlcliError) as error:
        begin(data, [f"init.from={ppo}"])
    assert "policy/linear/w: float32[2, 6] here, float32[4, 6] there" in str(
        error.value
    )
    deeper = {**PPO, "network": {**NETWORK, "layers": [6]}}
    with refuses("linear_2/w: nothing here"):
        begin(deeper, [f"init.from={ppo}"])


def test_a_policy_file_is_enough_for_what_acting_needs(dqn, ppo):
    _, start = begin(DQN, [f"init.from={Run(dqn).policy}"])
    assert_equal(start, learned(dqn), "learner/params/")


@pytest.mark.slow
def test_a_policy_of_the_zoo_starts_a_run():
    data = recipe.resolve(recipe.load_recipe("ppo_cartpole"))
    _, start = begin(data, ["init.from=zoo/ppo_cartpole", "init.seed=0"])
    acting = rlcli.load("zoo/ppo_cartpole", seed=0).params
    for group, modules in acting.items():
        for module, leaves in modules.items():
            for name, leaf in leaves.items():
                path = f"learner/params/{group}/{module}/{name}"
                np.testing.assert_array_equal(start[path][0], leaf, err_msg=path)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["init.parts=[valeu]"], ["valeu", "did you mean `value`"]),
        (["init.parts=[policy/head]"], ["policy/head", "policy/torso"]),
        (["init.parts={policy: actor}"], ["policy/linear/w", "nothing there"]),
        # No seed of the source would help: the seeds come second.
        (["init.parts=[valeu]", "train.seed=8"], ["valeu", "did you mean `value`"]),
        (["train.seed=8"], ["no seed 8", "only 3, 4", "init.seed=3"]),
    ],
)
def test_what_cannot_be_taken_is_one_error(ppo, sets, words):
    with refuses(*words):
        begin(PPO, [f"init.from={ppo}", *sets])


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    def spoil(path, leaf):
        return leaf * np.float32(np.nan) if path.endswith("policy/linear/w") else leaf

    source = save_source(tmp_path / "source", PPO, spoil)
    with refuses("policy/linear/w", "not finite"):
        begin(PPO, [f"init.from={source}"])


def test_an_updater_without_gradients_cannot_start_from_another(ppo):
    pytest.importorskip("evosax")
    data = recipe.resolve(recipe.load_recipe("open_es_cartpole"))
    with refuses("init", "no groups of parameters"):
        begin(data, [f"init.from={ppo}"])


def test_a_source_is_data_whatever_code_it_names(tmp_path, monkeypatch, dqn):
    monkeypatch.delitem(sys.modules, "evil", raising=False)  # of another test
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    content = checkpoint.read(Run(dqn).latest_checkpoint())
    content["recipe"] = content["recipe"].replace("name: mlp", "name: evil:net")
    assert "evil:net" in content["recipe"]
    checkpoint.write("evil.pkl.lz4", content)
    begin(DQN, ["init.from=evil.pkl.lz4"])
    assert not marker.exists()
    assert "evil" not in sys.modules


def test_a_changed_file_is_refused_and_the_source_stays_as_it_is(dqn, tmp_path):
    files = [path for path in sorted(dqn.rglob("*")) if path.is_file()]
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    found, _ = read_initial(recipe.load_recipe(DQN, [f"init.from={dqn}"]))
    name, digest = found.init.from_.split("#sha256=")
    assert name == str(Run(dqn).latest_checkpoint())
    assert digest == hashlib.sha256(Path(name).read_bytes()).hexdigest()
    after = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    assert before == after
    for expected in ("0" * 64, ""):
        with refuses("has changed", "SHA-256", f"names `{expected}`"):
            begin(DQN, [f"init.from={name}#sha256={expected}"])


@pytest.mark.slow
def test_a_run_is_complete_without_its_source(folder, dqn):
    data = {**DQN, "train": {**DQN["train"], "steps": 200, "start": 20}}
    Path("mine.yaml").write_text(json.dumps(data))
    source = Path("source")
    save_source(source, DQN, add_one)
    digest = hashlib.sha256(Run(source).latest_checkpoint().read_bytes()).hexdigest()
    run = rlcli.train("mine.yaml", init=source, run="first", quiet=True)
    info = Run(run).read_info()["init"]
    assert info["sha256"] == digest
    assert info["steps"] == [0, 0]
    for file in sorted(source.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    again = rlcli.reproduce(run, quiet=True)
    assert again["identical"]
    chunks = rlcli.chunks("mine.yaml", init=Run(run).init, run="second", quiet=True)
    next(chunks)
    chunks.close()
    rlcli.resume("second", quiet=True)
    ends = [checkpoint.read(Run(Path(r)).latest_checkpoint()) for r in (run, "second")]
    jax.tree.map(np.testing.assert_array_equal, *(end["progress"] for end in ends))
