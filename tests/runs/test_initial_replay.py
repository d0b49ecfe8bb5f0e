"""A replay begins with the steps of another run's; and what `init` takes and refuses.

The table of the guide is compared with what happens.
"""

import hashlib
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from wording import mentions

import rlcli
from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.runs import checkpoint
from rlcli.runs.creation import create_run
from rlcli.runs.initial_replay import read_steps
from rlcli.runs.run_folder import Run
from rlcli.runs.sources import read_source
from rlcli.training.experiment.together import build_experiments

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "transfer.md"
DQN = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [6]},
    "replay": {"name": "uniform", "capacity": 32, "batch_size": 4},
    "updater": {"name": "dqn", "target": {"every": 10}},
    "optimizer": "adam",
    "train": {"steps": 40, "start": 8, "seeds": 2, "seed": 3},
}
PPO = {
    "environment": {"name": "CartPole-v1", "num_envs": 2},
    "network": {"name": "mlp", "layers": [6]},
    "updater": "ppo",
    "normalize": {"observation": True},
    "train": {"steps": 40, "unroll": 4, "seeds": 2, "seed": 3},
}


def save_trained(folder: Path, data, iterations: int) -> Path:
    """A run that has been trained for some iterations."""
    parsed = recipe.load_recipe(data)
    train = parsed.train
    seeds = range(train.seed, train.seed + train.seeds)
    (experiment,) = build_experiments([parsed], seeds, is_new=True)
    experiment.program.begin()
    experiment.program.advance([iterations])
    experiment.save_checkpoint(create_run("source", run=folder))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The folder of the run `dqn`, whose ring has wrapped."""
    folder = tmp_path_factory.mktemp("runs")
    save_trained(folder / "dqn", DQN, 19)
    return folder


@pytest.fixture(scope="module")
def both_runs(runs) -> Path:
    """The same folder with the run `ppo`."""
    save_trained(runs / "ppo", PPO, 2)
    return runs


def stored_steps(run: Path, data) -> list:
    """The steps `[T, B]` of each seed, taken from the ring one by one."""
    content = checkpoint.read(Run(run).latest_checkpoint())
    parsed = recipe.load_recipe(data)
    (experiment,) = build_experiments([parsed], content["seeds"], is_new=True)
    setup = experiment.setup
    shapes = make_loop(setup).shapes()
    progress = checkpoint.restore_tree(shapes, content["progress"])
    replay = progress.agent.replay
    capacity, num_envs = data["replay"]["capacity"], parsed.num_envs
    end = int(progress.iteration) * setup.unroll
    times = range(max(0, end - capacity // num_envs), end)
    seeds = []
    for seed in range(len(content["seeds"])):
        packed = jax.tree.map(lambda leaf: leaf[seed], replay.packed)  # noqa: B023
        rows = [
            jax.vmap(replay.packing.unpack)(
                jax.tree.map(
                    lambda leaf: leaf[
                        time * num_envs % capacity  # noqa: B023
                        + np.arange(num_envs)
                    ],
                    packed,
                )
            )
            for time in times
        ]
        seeds.append(jax.tree.map(lambda *leaves: np.stack(leaves), *rows))
    return seeds


def read(data, run: Path, *sets: str):
    parsed = recipe.load_recipe(data, [f"init.from={run}", "init.replay=true", *sets])
    return read_steps(parsed, read_source(parsed.init.from_))


def test_a_check_says_where_a_recipe_asks_for_a_replay_that_its_source_lacks(folder):
    text = "extends: dqn_cartpole\n\ninit: {from: zoo/dqn_cartpole, replay: true}\n"
    (folder / "own.yaml").write_text(text)
    with pytest.raises(RlcliError, match=r"own\.yaml:3: .* has no replay"):
        rlcli.check("own.yaml")


@pytest.mark.slow
def test_the_steps_are_those_of_each_environment_in_order(runs):
    expected = stored_steps(runs / "dqn", DQN)
    steps = read(DQN, runs / "dqn")
    assert steps.reward.shape == (2, 32)
    for seed in range(2):
        for ours, theirs in zip(
            jax.tree.leaves(steps), jax.tree.leaves(expected[seed]), strict=True
        ):
            streams = theirs.swapaxes(0, 1)
            streams = streams.reshape(-1, *streams.shape[2:])
            same = np.asarray(ours[seed] == streams)
            inner = np.ones(32, bool)
            inner[[0, 15, 16, 31]] = False  # an episode is cut at the ends of streams
            assert same[inner].all()
    assert steps.first[:, [0, 16]].all()
    assert steps.last[:, [15, 31]].all()
    assert np.all(steps.discount[:, [15, 31]] >= 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "replay",
    [
        {"name": "prioritized", "capacity": 32, "batch_size": 4},
        {"name": "uniform", "capacity": 64, "batch_size": 4},
    ],
)
def test_the_replay_of_a_seed_begins_with_the_steps_of_its_own_seed(runs, replay):
    data = {**DQN, "replay": replay}
    sets = [f"init.from={runs / 'dqn'}", "init.replay=true"]
    parsed = recipe.load_recipe(data, sets)
    (experiment,) = build_experiments([parsed], [4, 3], is_new=True)
    assert experiment.recipe.init.replay == 32
    experiment.program.begin()
    progress, setup = experiment.program.progress, experiment.setup
    taken = read(data, runs / "dqn")
    for row, theirs in enumerate([1, 0]):
        agent = jax.tree.map(lambda leaf: leaf[row], progress.agent)  # noqa: B023
        unroll = jax.tree.map(lambda leaf: leaf[row], progress.unroll)  # noqa: B023
        stored, steps = setup.agent.inside.contents(agent, 0, unroll, (), 10**9)
        assert stored == 32
        # From rows in order of time to one environment after the other.
        obs = np.asarray(steps.obs).reshape(16, 2, 4).swapaxes(0, 1).reshape(32, 4)
        np.testing.assert_array_equal(obs, taken.obs[theirs])


@pytest.mark.slow
def test_the_ring_goes_on_after_the_steps_it_began_with(runs):
    data = {**DQN, "replay": {**DQN["replay"], "capacity": 40}}
    sets = [f"init.from={runs / 'dqn'}", "init.replay=true"]
    parsed = recipe.load_recipe(data, sets)
    (experiment,) = build_experiments([parsed], [3, 4], is_new=True)
    experiment.program.begin()
    experiment.program.advance([6])
    progress, setup = experiment.program.progress, experiment.setup
    agent, unroll = (
        jax.tree.map(lambda leaf: leaf[0], each)
        for each in (progress.agent, progress.unroll)
    )
    stored, steps = setup.agent.inside.contents(agent, 6, unroll, (), 10**9)
    assert stored == 40
    obs = np.asarray(steps.obs).reshape(20, 2, 4)
    taken = read(data, runs / "dqn").obs[0].reshape(2, 16, 4).swapaxes(0, 1)
    np.testing.assert_array_equal(
        obs[:14], taken[2:]
    )  # two of 16 times are overwritten
    assert not np.array_equal(obs[14:], taken[-6:])


def test_the_data_beside_the_replay_of_a_source_are_not_read(runs, folder):
    content = checkpoint.read(Run(runs / "dqn").latest_checkpoint())
    data = yaml.safe_load(content["recipe"])
    data["replay"] |= {"prefill": "gone.npz", "prefill_fraction": 0.5}
    checkpoint.write("source.pkl.lz4", {**content, "recipe": yaml.safe_dump(data)})
    taken, expected = (
        read(DQN, Path(path)) for path in ("source.pkl.lz4", runs / "dqn")
    )
    jax.tree.map(np.testing.assert_array_equal, taken, expected)


@pytest.mark.slow
def test_a_short_run_begins_with_the_steps_of_a_wide_one(tmp_path):
    wide = {
        **DQN,
        "environment": {"name": "CartPole-v1", "num_envs": 16},
        "replay": {"name": "uniform", "capacity": 64, "batch_size": 4},
        "train": {"steps": 640, "start": 64, "unroll": 4, "seed": 3},
    }
    wide = save_trained(tmp_path / "wide", wide, 2)
    assert read(DQN, wide).reward.shape == (1, 32)
    n_step = {"tracer": {"name": "n_step", "n": 5}}
    with pytest.raises(RlcliError, match=r"the replay of .* does not fit this run: "):
        read({**DQN, **n_step}, wide)


def test_a_number_takes_the_newest_steps_of_every_environment(runs):
    all_steps, some = (
        read(DQN, runs / "dqn", f"init.replay={value}") for value in ("true", "10")
    )
    np.testing.assert_array_equal(
        some.reward.reshape(2, 2, 5), all_steps.reward.reshape(2, 2, 16)[:, :, -5:]
    )


@pytest.mark.parametrize(
    ("replay", "says"),
    [
        ({"name": "episodes"}, "is for steps of the current policy"),
        ({"name": "frames"}, "cannot begin within an episode"),
        ({"name": "prioritized", "frames": {"stack": 3}}, "cannot begin within"),
    ],
)
def test_a_replay_that_cannot_begin_with_steps_is_refused(runs, replay, says):
    updater = "reinforce" if replay["name"] == "episodes" else DQN["updater"]
    with pytest.raises(RlcliError, match=says):
        read({**DQN, "replay": replay, "updater": updater}, runs / "dqn")


def begin_with_replay(runs: Path, *sets: str):
    sets = (f"init.from={runs / 'dqn'}", "init.replay=true", *sets)
    (experiment,) = build_experiments([recipe.load_recipe(DQN, sets)], [3], is_new=True)
    return experiment


@pytest.mark.slow
def test_the_steps_it_began_with_are_divided_among_other_devices_too(runs):
    """As a replay that is moved from one device to one, which stays as it is."""
    experiment = begin_with_replay(runs)
    experiment.program.begin()
    experiment.program.advance([2])
    agent, state = experiment.setup.agent, experiment.program.progress.agent
    moved = agent.redivide(jax.device_get(state), 2, 1, 1)
    jax.tree.map(np.testing.assert_array_equal, moved.replay, state.replay)


def test_a_source_that_the_user_names_with_its_digest_fills_the_replay(runs):
    file = Run(runs / "dqn").latest_checkpoint()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    experiment = begin_with_replay(runs, f"init.from={file}#sha256={digest}")
    assert experiment.recipe.init.replay == 32


def test_steps_are_copied_from_a_source_only_for_a_replay(runs, folder):
    begin_with_replay(runs).program.initial.write(Path("init.pkl.lz4"))
    assert read_source("init.pkl.lz4").recorded
    experiment = begin_with_replay(runs, "init.from=init.pkl.lz4", "init.replay=false")
    experiment.program.initial.write(Path("again.pkl.lz4"))
    assert not read_source("again.pkl.lz4").recorded


@pytest.mark.parametrize("cut", [np.s_[:, :5], np.s_[:, 0]])
def test_a_source_whose_steps_are_not_equally_many_is_one_error(runs, folder, cut):
    begin_with_replay(runs).program.initial.write(Path("init.pkl.lz4"))
    content = checkpoint.read(Path("init.pkl.lz4"))
    learned = content["learned"]
    content["learned"] = {**learned, "replay/reward": learned["replay/reward"][cut]}
    checkpoint.write("init.pkl.lz4", content)
    with pytest.raises(RlcliError, match="is damaged: its steps are not equally many"):
        read(DQN, Path("init.pkl.lz4"))


def test_a_damaged_replay_is_refused_only_where_it_is_wanted(runs, folder):
    content = checkpoint.read(Run(runs / "dqn").latest_checkpoint())
    path = next(path for path in content["progress"] if "agent/replay/" in path)
    content["progress"][path] = content["progress"][path][:0]
    checkpoint.write("cut.pkl.lz4", content)
    begin_with_replay(runs, "init.from=cut.pkl.lz4", "init.replay=false")
    with pytest.raises(RlcliError, match=f"`{path}` has no entry for each seed"):
        read(DQN, Path("cut.pkl.lz4"))


# Title, source, options beside `init.from`, and the recipe.
CASES = [
    ("the same agent", "ppo", [], PPO),
    ("more seeds than the source", "ppo", ["train.seeds=3"], PPO),
    ("all seeds from one", "ppo", ["train.seeds=3", "init.seed=4"], PPO),
    ("a wider layer", "ppo", ["network.layers=[7]"], PPO),
    ("another task", "ppo", ["environment.name=Acrobot-v1"], PPO),
    (
        "the torso of another algorithm",
        "dqn",
        ["init.parts={policy/torso: q/torso}", "normalize.observation=false"],
        PPO,
    ),
    (
        "observations that were not normalized",
        "ppo",
        ["normalize.observation=false"],
        PPO,
    ),
    ("the optimizer", "dqn", ["init.optimizer=true"], DQN),
    ("another optimizer", "dqn", ["optimizer=sgd", "init.optimizer=true"], DQN),
    ("a policy file", "ppo/policy.pkl.lz4", [], PPO),
    (
        "a policy file with its optimizer",
        "ppo/policy.pkl.lz4",
        ["init.optimizer=true"],
        PPO,
    ),
    ("the replay", "dqn", ["init.replay=true"], DQN),
    (
        "the replay of another task",
        "dqn",
        ["init.replay=true", "init.parts=[q/torso]", "environment.name=Acrobot-v1"],
        DQN,
    ),
    ("the replay of a policy", "dqn/policy.pkl.lz4", ["init.replay=true"], DQN),
    (
        "the replay of an agent without one",
        "ppo",
        ["init.replay=true", "init.parts=[q/torso]"],
        DQN,
    ),
]


def describe_case(title: str, source: str, sets: list[str], data) -> str:
    """The line of the table for a case."""
    written = [f"init.from={source}", *sets]
    try:
        parsed = recipe.load_recipe(data, written)
        train = parsed.train
        seeds = range(train.seed, train.seed + train.seeds)
        build_experiments([parsed], seeds, is_new=True)
        result = "starts"
    except RlcliError as error:
        result = re.sub(r"^--set \S+: ", "", error.message)
    options = ", ".join(f"`{change}`" for change in written)
    return f"| {title} | {options} | {result} |"


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_the_guide_tells_what_starts_and_what_is_refused(both_runs, monkeypatch):
    monkeypatch.chdir(both_runs)
    before = digests(both_runs)
    table = [describe_case(*case) for case in CASES]
    assert digests(both_runs) == before
    page = GUIDE.read_text(encoding="utf-8")
    assert "\n".join(table) in page, "\n".join(table)
    assert sum(line.endswith("| starts |") for line in table) >= 5


def test_steps_that_do_not_fit_are_listed_with_both_shapes(runs):
    acrobot = {**DQN, "environment": {"name": "Acrobot-v1", "num_envs": 2}}
    with pytest.raises(RlcliError) as error:
        read(acrobot, runs / "dqn")
    text = str(error.value)
    words = "pending/obs: float32[2, 6] here, float32[2, 4] there", "init.replay=false"
    assert all(mentions(text, word) for word in words), text


def test_a_replay_of_code_from_elsewhere_is_refused_without_running_it(
    runs, tmp_path, monkeypatch
):
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    content = checkpoint.read(Run(runs / "dqn").latest_checkpoint())
    content["recipe"] = content["recipe"].replace("name: uniform", "name: evil:replay")
    assert "evil:replay" in content["recipe"]
    checkpoint.write("evil.pkl.lz4", content)
    with pytest.raises(RlcliError, match="not part of rlcli"):
        read(DQN, Path("evil.pkl.lz4"))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("train", "unroll"), 0),
        (("train", "unroll"), "many"),
        (("environment", "num_envs"), -2),
        (("init",), {"replay": "all"}),
        (("train", "unroll"), float("inf")),
        (("init",), {"replay": -3}),
        (("init",), {"replay": 10**12}),
        ((), 2**31),
        ((), 2**62),
    ],
)
def test_a_checkpoint_that_cannot_have_stored_steps_is_one_error(
    runs, folder, place, value
):
    content = checkpoint.read(Run(runs / "dqn").latest_checkpoint())
    if place:
        data = section = yaml.safe_load(content["recipe"])
        for key in place[:-1]:
            section = section[key]
        section[place[-1]] = value
        content["recipe"] = yaml.safe_dump(data)
    else:
        content["progress"] = {**content["progress"], "iteration": np.int64(value)}
    checkpoint.write("source.pkl.lz4", content)
    with pytest.raises(RlcliError, match="does not say how"):
        read(DQN, Path("source.pkl.lz4"))


def rows_of_the_guide() -> dict[str, str]:
    """What the table of the guide says of each case."""
    page = GUIDE.read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (.+?) \| .*init\.from.* \| (.+) \|$", page, re.M))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if rows_of_the_guide()[case[0]] == "starts"],
    ids=lambda case: case[0],
)
def test_a_run_that_was_killed_ends_as_one_that_was_not(folder, both_runs, case):
    _, source, sets, data = case
    Path("mine.yaml").write_text(json.dumps(data))
    sets = [*sets, "train.checkpoint.every=8"]
    init = both_runs / source
    rlcli.train("mine.yaml", init=init, set=sets, run="first", quiet=True)
    info = Run(Path("first")).read_info()["init"]
    file = init if init.is_file() else Run(init).latest_checkpoint()
    assert info["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    for name in ("second", "third"):
        chunks = rlcli.chunks("mine.yaml", init=init, set=sets, run=name, quiet=True)
        next(chunks)
        chunks.close()
        run = Run(Path(name))
        if name == "third":  # as if it had been killed before its first checkpoint
            for path in (run.index, run.policy, *run.list_checkpoints()):
                path.unlink(missing_ok=True)
            run.write_info(status="running")
        rlcli.resume(name, quiet=True)
    ends = [
        checkpoint.read(Run(Path(name)).latest_checkpoint())["progress"]
        for name in ("first", "second", "third")
    ]
    for end in ends[1:]:
        jax.tree.map(np.testing.assert_array_equal, ends[0], end)
    again = rlcli.reproduce("first", quiet=True)
    assert again["identical"]


def begin(data, *sets: str):
    """The agent's state at the start of a run, by tree path, `[S, ...]`."""
    parsed = recipe.load_recipe(data, sets)
    (experiment,) = build_experiments([parsed], [3, 4], is_new=True)
    experiment.program.begin()
    return experiment, checkpoint.flatten_tree(experiment.program.progress.agent)


DAGGER = {
    **{key: PPO[key] for key in ("environment", "network", "normalize")},
    "updater": {"name": "behaviour_cloning", "labels": "teacher"},
    "replay": {"name": "uniform", "capacity": 512, "batch_size": 32},
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "train": {"steps": 400, "start": 32, "seeds": 2, "seed": 3},
}


@pytest.mark.slow
def test_a_teacher_is_taken_without_the_parameters(both_runs):
    sets = f"init.from={both_runs / 'ppo'}", "init.teacher=true"
    _, start = begin(DAGGER, *sets)
    _, fresh = begin(DAGGER)
    theirs = read_source(str(both_runs / "ppo")).learned
    taught = [path for path in start if "/initial/" in path]
    assert taught
    for path in taught:
        name = f"params/{path.partition('/initial/')[2]}"
        np.testing.assert_array_equal(start[path], theirs[name])
    for path in (path for path in start if "/params/" in path):
        np.testing.assert_array_equal(start[path], fresh[path])
    assert any("statistics/observation" in path for path in start)


def test_a_run_that_compares_its_policy_with_none_has_no_teacher():
    with pytest.raises(RlcliError) as error:
        begin(PPO, "init.from=zoo/dqn_cartpole", "init.seed=0", "init.teacher=true")
    assert mentions(str(error.value), "`init.teacher`", "`updater.regularizers`")


@pytest.mark.slow
def test_a_learner_comes_near_its_teacher_where_it_gets_to(both_runs):
    """The KL of NumPy, in states that the learner has visited."""
    sets = f"init.from={both_runs / 'ppo'}", "init.teacher=true"
    experiment, start = begin(DAGGER, *sets)

    def divergence(agent, obs) -> float:
        prefix = "learner/learner/"
        mean, variance = (
            agent[f"learner/statistics/observation/{name}"][0]
            for name in ("mean/0", "variance/0")
        )
        x = np.clip((obs - mean) / np.sqrt(variance + 1e-8), -10, 10)
        logits = []
        for group in ("initial", "params"):
            weights = f"{prefix}{group}/policy/linear"
            hidden = np.maximum(
                x @ agent[f"{weights}/w"][0] + agent[f"{weights}/b"][0], 0
            )
            out = hidden @ agent[f"{weights}_1/w"][0] + agent[f"{weights}_1/b"][0]
            logits.append(out - np.log(np.exp(out).sum(-1, keepdims=True)))
        return float((np.exp(logits[0]) * (logits[0] - logits[1])).sum(-1).mean())

    experiment.program.advance([200])
    progress = experiment.program.progress
    end = checkpoint.flatten_tree(progress.agent)
    agent, unroll = (
        jax.tree.map(lambda leaf: leaf[0], each)
        for each in (progress.agent, progress.unroll)
    )
    _, steps = experiment.setup.agent.inside.contents(agent, 200, unroll, (), 100)
    obs = np.asarray(steps.obs)
    before = divergence(
        {**end, **{p: x for p, x in start.items() if "/params/" in p}}, obs
    )
    assert divergence(end, obs) < 0.2 * before
