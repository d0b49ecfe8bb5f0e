"""Empty spaces: agents whose observations or actions have no numbers, end to end."""

import importlib.util

import jax
import numpy as np
import pytest

import rlcli
from rlcli.registry import user_code

CODE = """
import gymnasium
import numpy as np
from gymnasium import spaces

EMPTY, ROW = spaces.Box(-1, 1, (0,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
BYTES = spaces.Box(0, 255, (0, 3), np.uint8)
SPACES = {
    "empty": EMPTY,
    "bytes": BYTES,
    "dict": spaces.Dict(a=EMPTY, b=ROW),
    "tuple": spaces.Tuple([spaces.Discrete(2), EMPTY]),
    "row": ROW,
    "choice": spaces.Discrete(2),
}


class Blank(gymnasium.Env):
    def __init__(self, seen: str, done: str):
        self.observation_space, self.action_space = SPACES[seen], SPACES[done]

    def observe(self):
        self.observation_space.seed(int(self.np_random.integers(1000)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.time += 1
        return self.observe(), 1.0, self.time == 5, False, {}
"""


@pytest.fixture(autouse=True)
def user_module(tmp_path, fresh_imports):
    (tmp_path / "blank_t.py").write_text(CODE)
    user_code.search_first(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seen", "done", "updater", "options"),
    [
        ("empty", "choice", "ppo", ["normalize.observation=true"]),
        ("dict", "choice", "dqn", ["network.init=orthogonal"]),
        ("bytes", "dict", "a2c", ["network.memory.name=gru"]),
        ("tuple", "row", "sac", []),
        ("empty", "row", "td3", ["policy.name=state_dependent"]),
        ("empty", "tuple", "ppo", []),
        ("empty", "empty", "ppo", []),
    ],
)
def test_spaces_without_numbers_work_in_every_command(
    seen, done, updater, options, tmp_path
):
    recipe = {
        "environment": {"name": "blank_t:Blank", "seen": seen, "done": done},
        "updater": updater,
        "network": {"name": "mlp", "layers": [8]},
        "train": {
            "steps": 48,
            **({"unroll": 8} if updater in ("ppo", "a2c") else {"start": 8}),
            "evaluate": {"every": 48, "episodes": 2},
        },
    }
    run = rlcli.train(recipe, run=tmp_path / "run", set=options, quiet=True)
    # A resume in the middle of an episode is exact.
    rlcli.resume(run, set=["train.steps=64"], quiet=True, trust=True)
    assert '"inexact": ""' in (run / "run.json").read_text()
    assert rlcli.eval(run, episodes=2, trust=True)["return"]["mean"] == 5
    data = rlcli.collect(run, episodes=2, output=tmp_path / "data.npz", trust=True)
    assert data["steps"] == 10
    rlcli.render(run, output=tmp_path / "film.gif", trust=True)
    policy = rlcli.load(run, trust=True)
    env = policy.make_env()
    obs, _ = env.reset(seed=0)
    action, _ = policy.act(obs)
    env.step(action)
    file = tmp_path / "exported_t.py"
    rlcli.export(run, format="numpy", output=file, trust=True)
    spec = importlib.util.spec_from_file_location("exported_t", file)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    theirs = exported.act(obs)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5), theirs, action)
