"""Exported policies act like the run, in a process without rlcli."""

import ast
import functools
import importlib.util
import json
import subprocess
import sys
import zipfile

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from policy_files import write_policy
from wording import mentions

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.export import numpy_module
from rlcli.evaluation.export.export import describe_policy
from rlcli.evaluation.export.graph import BATCH, Graph, Value
from rlcli.evaluation.export.policy_function import (
    PolicyFunction,
    Port,
    make_policy_function,
)

ROWS = 200
SMALL = {"name": "mlp", "layers": [4]}
PENDULUM = {"name": "Pendulum-v1", "time_limit": 20}
FRAMES = {"name": "frame_stack", "frames": 2}
RECIPES = {
    "normalized": {
        "environment": PENDULUM,
        "network": SMALL,
        "updater": "ppo",
        "normalize": {"observation": True},
    },
    "clipped": {
        "environment": PENDULUM,
        "network": SMALL,
        "updater": "ppo",
        "normalize": {"observation": True, "observation_clip": 0.5},
    },
    "squashed": {"environment": PENDULUM, "network": SMALL, "updater": "sac"},
    "batch_norm": {
        "environment": PENDULUM,
        "network": {"layers": [4]},
        "updater": "crossq",
    },
    "masked": {"environment": "ConnectFour-v0", "network": SMALL, "updater": "dqn"},
    "images": {
        "environment": "MinAtar/Breakout-v1",
        "network": {"name": "cnn", "preset": "minatar", "channels": [2], "layers": [4]},
        "updater": "ppo",
    },
    "residual": {
        "environment": "MinAtar/Breakout-v1",
        "network": {"name": "residual", "channels": [2], "width": 4},
        "updater": "ppo",
    },
    "frames": {
        "environment": {"name": "MinAtar/Breakout-v1", "time_limit": 30},
        "network": SMALL | {"preprocess": [FRAMES]},
        "updater": "dqn",
    },
    "recurrent": {
        "environment": {"name": "bsuite/MemoryChain", "memory_length": 5},
        "network": SMALL | {"memory": {"name": "lstm", "size": 4}},
        "updater": "ppo",
    },
    "host": {
        "environment": {"name": "gymnasium/Ports-v0", "time_limit": 9},
        "network": SMALL,
        "updater": "ppo",
    },
}
STATEFUL = {"frames", "recurrent"}
FORMATS = {
    "numpy": "",
    "onnx": "onnxruntime",
    "stablehlo": "flatbuffers",
}
# Runs in a process of its own: acts on the observations of two steps.
ACT = """
import importlib.util, json, sys, zipfile
sys.modules["rlcli"] = None  # cannot be imported
from pathlib import Path
import numpy as np

def make_stepper(file, format):
    if format == "onnx":
        import onnxruntime
        policy = onnxruntime.InferenceSession(file)
        text = policy.get_modelmeta().custom_metadata_map["rlcli"]
        names = [output.name for output in policy.get_outputs()]
        return json.loads(text), lambda inputs: dict(
            zip(names, policy.run(names, inputs))
        )
    import jax.export
    with zipfile.ZipFile(file) as archive:
        policy = jax.export.deserialize(bytearray(archive.read("policy.stablehlo")))
        return json.loads(archive.read("metadata.json")), policy.call

folder, format, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
for name in names:
    with np.load(folder / f"{name}.npz") as file:
        given = dict(file)
    rows = len(given["first"])
    (file,) = [
        file for file in (folder / name).iterdir() if file.suffix != ".npz"
    ]
    if format == "numpy":
        spec = importlib.util.spec_from_file_location("policy", file)
        policy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(policy)
    else:
        metadata, step = make_stepper(str(file), format)
        state = {
            entry["input"]: np.broadcast_to(
                np.array(entry["initial"], array["dtype"]), (rows, *array["shape"][1:])
            )
            for entry in metadata["state"]
            for array in metadata["inputs"]
            if array["name"] == entry["input"]
        }
    results, first = {}, np.ones(rows, bool)
    for time in (0, 1):
        leaves = {
            key.partition("/")[2]: leaf
            for key, leaf in given.items()
            if key.startswith(f"{time}/")
        }
        if format == "numpy":
            obs = leaves.get("observation")
            if obs is None:
                obs = {key.partition(".")[2]: leaf for key, leaf in leaves.items()}
            action, state = policy.act(
                obs, *([state, given["first"]] if time else [])
            )
            if not isinstance(action, dict):
                action = {"": action}
            outputs = {
                ".".join(["action", *([key] if key else [])]): leaf
                for key, leaf in action.items()
            }
        else:
            inputs = {
                array["name"]: leaves[array["name"]].astype(array["dtype"])
                for array in metadata["inputs"]
                if array["name"] in leaves
            } | state
            if any(array["name"] == "first" for array in metadata["inputs"]):
                inputs["first"] = first
            outputs = step(inputs)
            state = {
                entry["input"]: np.asarray(outputs.pop(entry["output"]))
                for entry in metadata["state"]
            }
            first = given["first"]
        results |= {f"{time}/{key}": np.asarray(leaf) for key, leaf in outputs.items()}
    np.savez(folder / f"{name}.{format}.actions.npz", **results)
assert ("jax" in sys.modules) == (format == "stablehlo")
"""


class Ports(gymnasium.Env):
    """Observations and actions of several arrays, with other starts and dtypes."""

    observation_space = spaces.Dict(
        {"level": spaces.Discrete(4, start=-2), "view": spaces.Box(-1, 1, (3,), float)}
    )
    action_space = spaces.Dict(
        {
            "dials": spaces.MultiDiscrete([3, 2], start=[1, 0]),
            "push": spaces.Box(np.float32([-0.1, 7, -0.1]), np.float32([0.1, 7, 0.1])),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    gymnasium.register("Ports-v0", Ports)
    yield
    gymnasium.registry.pop("Ports-v0")


@pytest.fixture(scope="module")
def make_policy(tmp_path_factory):
    """A function: a policy, with observations of two steps and where they begin."""

    @functools.cache
    def make(name):
        folder = tmp_path_factory.mktemp(name)
        policy = rlcli.load(write_policy(folder, RECIPES[name], scale=1.0))
        rng = np.random.default_rng(0)
        times = [sample(policy.spaces.observation, rng) for _ in range(2)]
        return policy, times, rng.random(ROWS) < 0.3

    return make


def sample(space, rng):
    """A batch of random observations."""
    match space:
        case spaces.Dict():
            return {name: sample(each, rng) for name, each in space.items()}
        case spaces.MultiBinary():
            mask = rng.random((ROWS, *space.shape)) < 0.5
            return (mask | (np.arange(space.n) == 0)).astype(space.dtype)
        case spaces.Discrete():
            return rng.integers(space.n, size=ROWS) + space.start
        case spaces.Box() if space.dtype == bool:
            return rng.random((ROWS, *space.shape)) < 0.3
    return rng.normal(size=(ROWS, *space.shape)).astype(space.dtype)


def named_leaves(prefix, tree):
    if not isinstance(tree, dict):
        return {prefix: np.asarray(tree)}
    return {f"{prefix}.{name}": np.asarray(leaf) for name, leaf in tree.items()}


@pytest.mark.parametrize(
    ("format", "names"),
    [
        pytest.param("numpy", ["normalized", "clipped", "recurrent"], id="some"),
        *(pytest.param(n, RECIPES, id=n, marks=pytest.mark.slow) for n in FORMATS),
    ],
)
def test_actions_equal_those_of_the_run_where_rlcli_cannot_be_imported(
    format, names, make_policy, tmp_path
):
    if FORMATS[format]:
        pytest.importorskip(FORMATS[format])
    for name in names:
        policy, times, first = make_policy(name)
        (tmp_path / name).mkdir()
        suffix = {"numpy": ".py", "onnx": ".onnx", "stablehlo": ".stablehlo.zip"}
        output = tmp_path / name / f"policy{suffix[format]}"
        rlcli.export(policy.file, format=format, output=output)
        arrays = {}
        for time, obs in enumerate(times):
            leaves = named_leaves("observation", obs)
            arrays |= {f"{time}/{key}": leaf for key, leaf in leaves.items()}
        np.savez(tmp_path / f"{name}.npz", first=first, **arrays)
    subprocess.run(
        [sys.executable, "-c", ACT, str(tmp_path), format, *names], check=True
    )
    for name in names:
        policy, (obs, next_obs), first = make_policy(name)
        action, state = policy.act(obs)
        next_action, _ = policy.act(next_obs, state, first)
        with np.load(tmp_path / f"{name}.{format}.actions.npz") as file:
            found = dict(file)
        for time, expected in enumerate((action, next_action)):
            for key, leaf in named_leaves("action", expected).items():
                actions = found[f"{time}/{key}"]
                assert time or len(np.unique(leaf)) > 1, "a constant policy"
                if leaf.dtype.kind == "f":
                    np.testing.assert_allclose(actions, leaf, rtol=0, atol=1e-5)
                else:
                    np.testing.assert_array_equal(actions, leaf, err_msg=name)


@pytest.mark.slow
def test_only_what_actions_depend_on_is_state(make_policy):
    for name in RECIPES:
        policy, *_ = make_policy(name)
        function = make_policy_function(policy)
        assert bool(function.state) == (name in STATEFUL)
        assert ("first" in function.inputs) == (name in STATEFUL)


def test_the_metadata_describe_arrays_spaces_and_the_run(make_policy):
    policy, *_ = make_policy("host")
    data = describe_policy(policy, make_policy_function(policy))
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    by_name = {entry["name"]: entry for entry in [*data["inputs"], *data["outputs"]]}
    assert by_name["observation.level"] == {
        "name": "observation.level",
        "shape": ["batch"],
        "dtype": "int32",
        "space": {"type": "Discrete", "n": 4, "start": -2},
    }
    assert by_name["action.push"]["shape"] == ["batch", 3]
    assert by_name["action.dials"]["space"]["start"] == [1, 0]
    assert data["environment"] == "gymnasium/Ports-v0"
    assert (data["seed"], data["steps"], data["state"]) == (0, 100, [])
    assert data["recipe"]["updater"]["name"] == "ppo"


def test_a_stablehlo_program_runs_on_all_platforms(make_policy, tmp_path):
    pytest.importorskip("flatbuffers")
    output = tmp_path / "policy.stablehlo.zip"
    rlcli.export(make_policy("normalized")[0].file, format="stablehlo", output=output)
    with zipfile.ZipFile(output) as archive:
        program = jax.export.deserialize(bytearray(archive.read("policy.stablehlo")))
    assert program.platforms == ("cpu", "cuda", "tpu")


@pytest.mark.slow
def test_policies_clip_observations_as_the_recipe_says(make_policy, tmp_path):
    """With a bound of 0.5, observations beyond it are one observation."""
    obs = np.array([[3, -3, 40], [1e6, -1e6, 1e6], [0.1, -0.1, 0.2]], "f4")
    for name, is_equal in (("clipped", True), ("normalized", False)):
        policy = make_policy(name)[0]
        loaded = policy.act(obs)[0]
        rlcli.export(policy.file, format="numpy", output=tmp_path / f"{name}.py")
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for action in (loaded, module.act(obs)[0]):
            assert np.array_equal(action[0], action[1]) == is_equal
            assert not np.array_equal(action[0], action[2])


@pytest.mark.slow
def test_equal_policies_give_equal_bytes(make_policy, tmp_path):
    pytest.importorskip("onnx")
    file, contents = make_policy("normalized")[0].file, []
    for _ in range(2):
        result = rlcli.export(file, format="onnx", output=tmp_path / "policy.onnx")
        contents.append((tmp_path / "policy.onnx").read_bytes())
    assert contents[0] == contents[1]
    assert result["bytes"] == len(contents[0])


def test_a_module_acts_on_single_observations_and_any_batch(make_policy, tmp_path):
    policy, (obs, _), _ = make_policy("recurrent")
    rlcli.export(policy.file, format="numpy", output=tmp_path / "single.py")
    sys.path.insert(0, str(tmp_path))
    try:
        import single
    finally:
        sys.path.remove(str(tmp_path))
    batch, _ = single.act(obs)
    action, state = single.act(obs[0])
    assert action == batch[0] and state[0].shape == (4,)
    square, state = single.act(obs.reshape(10, ROWS // 10, *obs.shape[1:]))
    np.testing.assert_array_equal(square.ravel(), batch)
    assert state[0].shape == (10, ROWS // 10, 4)
    with pytest.raises(ValueError, match=r"`observation` of shape \(1, 3\)"):
        single.act(np.zeros(5))


def test_names_in_a_module_are_data(tmp_path):
    metadata = {"inputs": [{"name": '"""; raise SystemExit #\\'}], "state": []}
    port = Port("action", (), spaces.Discrete(2))
    value = Value("first", (BATCH,), np.dtype(bool))
    function = PolicyFunction(
        compute=lambda inputs: inputs,
        inputs={},
        observation=[Port("first", ("'\n]", 0), spaces.Discrete(2))],
        action=[port],
        state={},
        graph=Graph({"first": value}, (), {"action": value}, {}),
    )
    file = tmp_path / "policy.py"
    source = numpy_module.write_files(function, metadata, file)[file].decode()
    tree = ast.parse(source)
    assert "raise SystemExit" in source
    assert not any(
        isinstance(n, ast.Raise) and "Exit" in ast.unparse(n) for n in ast.walk(tree)
    )


def test_a_random_policy_is_refused(tmp_path):
    recipe = {"environment": PENDULUM, "policy": "random", "updater": "ppo"}
    file = write_policy(tmp_path, recipe)
    with pytest.raises(RlcliError, match="all its actions are random"):
        rlcli.export(file, format="numpy")
    assert [*tmp_path.iterdir()] == [file]


def test_bfloat16_is_for_stablehlo_only(tmp_path):
    recipe = {"environment": PENDULUM, "network": SMALL, "updater": "ppo"}
    file = write_policy(tmp_path, recipe | {"train": {"precision": "bfloat16"}})
    with pytest.raises(RlcliError, match="arrays of bfloat16") as caught:
        rlcli.export(file, format="numpy")
    assert mentions(caught.value.hint, "`--format stablehlo`")
