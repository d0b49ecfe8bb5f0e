"""First steps: what a replay rebuilds is compared with what environments return."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from tiers import quick_first

import rlcli
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.loop import make_loop
from rlcli.recipe import load_recipe
from rlcli.registry import user_code
from rlcli.replays.datasets.dataset_arrays import DatasetArrays
from rlcli.replays.datasets.dataset_files import dump_dataset
from rlcli.replays.datasets.recipe_dataset import Dataset
from rlcli.training.experiment import first_steps
from rlcli.training.experiment.first_steps import check_first_steps
from rlcli.types import External, FrameStack

CODE = '''
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.types import Core, FrameStack, TimeStep


class Stacked(gymnasium.Env):
    """Stacks of three frames of 2 x 4 numbers, on the first or on the last axis."""

    action_space = spaces.Discrete(2)

    def __init__(self, first=False, zero=False, mask=False, stacks=True, members=False):
        self.first, self.zero, self.mask, self.stacks = first, zero, mask, stacks
        self.members = members
        shape = (6, 4) if first else (2, 12)
        space = spaces.Box(0, 1, shape, np.float32)
        if members:
            space = spaces.Tuple([space, space])
        if mask:
            mask_space = spaces.MultiBinary(2)
            space = spaces.Dict(observation=space, action_mask=mask_space)
        self.observation_space = space

    def observe(self):
        frames = self.frames if self.stacks else list(self.np_random.random((3, 2, 4)))
        obs = np.concatenate(frames, 0 if self.first else 1).astype(np.float32)
        obs = (obs, obs[::-1, ::-1]) if self.members else obs
        mask = np.ones(2, np.int8)
        return {"observation": obs, "action_mask": mask} if self.mask else obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        frame = self.np_random.random((2, 4))
        self.frames = [frame * (not self.zero)] * 2 + [frame]
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        self.frames = [*self.frames[1:], self.np_random.random((2, 4))]
        return self.observe(), 1.0, self.time % 7 == 0, False, {}


def pure(*, padding: str = "repeat") -> Core:
    """Declares that its stack repeats the first frame."""
    begin = 1.0 if padding == "repeat" else 0.0

    def reset(key):
        stack = jnp.array([begin, begin, 1.0])
        return stack, stack

    def step(state, action, noise):
        state = jnp.append(state[1:], state[-1] + 1)
        last = state[-1] > 5
        return state, TimeStep(state, state, jnp.float32(1), 1.0 - last, last, {})

    space = spaces.Box(0, 9, (3,), np.float32)
    stack = FrameStack(3, -1, "repeat")
    return Core(reset, step, space, spaces.Discrete(2), frame_stack=stack)


def goals(*, wrong: str = "") -> Core:
    """A walk on a line to a goal, which is 3."""

    def goal_reward(achieved, desired):
        is_there = jnp.all(achieved == desired)
        return jnp.where(is_there, 1.0, 0.0), jnp.where(is_there, 0.0, 1.0)

    def observe(state):
        goal = jnp.full(1, 3.0)
        if wrong == "goal":
            goal = goal + state
        return {"observation": state, "achieved_goal": state, "desired_goal": goal}

    def reset(key):
        return jnp.zeros(1), observe(jnp.zeros(1))

    def step(state, action, noise):
        state = state + 1
        obs = observe(state)
        reward, discount = goal_reward(state, jnp.full(1, 3.0))
        if wrong == "reward":
            reward = reward - 0.5
        if wrong == "discount":
            discount = jnp.float32(1)
        return state, TimeStep(obs, obs, reward, discount, discount == 0, {})

    box = spaces.Box(0, 99, (1,), np.float32)
    space = spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
    return Core(reset, step, space, spaces.Discrete(2), goal_reward=goal_reward)
'''
LEARN = {
    "updater": "q_learning",
    "network": {"name": "mlp", "layers": [8]},
    "train": {"steps": 200, "start": 50, "evaluate": None, "checkpoint": None},
}


@pytest.fixture(autouse=True)
def user_module(tmp_path, fresh_imports):
    (tmp_path / "stacked.py").write_text(CODE)
    user_code.search_first(tmp_path)


def check(environment, replay, **options):
    if not isinstance(replay, dict):
        replay = {"name": replay}
    replay = {"capacity": 100, **replay}
    environment = {"name": f"stacked:{environment}", **options}
    recipe = load_recipe({**LEARN, "environment": environment, "replay": replay})
    setup = build(recipe)
    make_loop(setup).shapes()  # `check` traces the program first
    check_first_steps(recipe, setup)


FRAMES = {"name": "frames", "stack": 3}
FIRST = {**FRAMES, "axis": 0}


TRUE_STACKS = [
    ({}, FRAMES),
    ({}, {**FRAMES, "axis": 1}),
    ({"first": True, "zero": True}, {**FIRST, "padding": "zero"}),
    ({"mask": True}, FRAMES),
    ({"stacks": False}, "uniform"),
    ({"first": True}, {"name": "prioritized", "frames": {"stack": 3, "axis": 0}}),
]


@pytest.mark.parametrize(
    ("environment", "replay"),
    quick_first(TRUE_STACKS, quick=2),
)
def test_true_stacks_are_accepted(environment, replay):
    check("Stacked", replay, **environment)


OTHER_STACKS = [
    ({"first": True}, FRAMES, "3 frames [6, 4] along", 1, None),
    (
        {"first": True},
        {**FRAMES, "axis": 1, "stack": 2},
        "",
        1,
        "stack: 3, axis: 0",
    ),
    ({"zero": True}, FRAMES, "3 frames [2, 4] along axis -1", 1, "padding: zero"),
    ({}, {**FRAMES, "stack": 6}, "6 frames [2, 2] along axis -1", 1, "stack: 3"),
    ({}, {**FRAMES, "stack": 4}, "4 frames [2, 3] along axis -1", 1, "stack: 3"),
    ({}, FIRST | {"stack": 2}, "2 frames [1, 12]", 1, "stack: 3, axis: -1"),
    ({"stacks": False}, FRAMES, "3 frames [2, 4] along axis -1", 1, ""),
    ({"mask": True, "zero": True}, FRAMES, "3 frames [2, 4]", 1, "padding: zero"),
    (
        {"members": True},
        FRAMES,
        "[2, 12] for 3 frames [2, 4] along axis -1",
        1,
        "",
    ),  # the other member is reversed
    (
        {"first": True},
        {"name": "prioritized", "frames": {"stack": 2, "axis": 1}},
        "2 frames [6, 2] along axis 1, the first one repeated at the start",
        1,
        "stack: 3, axis: 0",
    ),
]


@pytest.mark.parametrize(
    ("environment", "replay", "stack", "step", "fits"),
    quick_first(OTHER_STACKS, quick=3),
)
def test_other_stacks_are_refused_with_both_shapes_and_what_would_fit(
    environment, replay, stack, step, fits
):
    if fits is None:  # 4 numbers are no 3 frames
        with pytest.raises(RlcliError, match="cannot split an observation"):
            check("Stacked", replay, **environment)
        return
    with pytest.raises(RlcliError) as caught:
        check("Stacked", replay, **environment)
    message, hint = caught.value.message, caught.value.hint
    assert stack in message
    assert f"in step {step} of environment `stacked:Stacked` they are not" in message
    assert hint.startswith(f"`{fits}` would fit: 3 frames" if fits else "use `replay")


@pytest.mark.slow
def test_a_stack_that_a_compiled_environment_declares_is_compared_too():
    check("pure", FRAMES)
    with pytest.raises(
        RlcliError, match=r"in step 1 of .*:pure` they are not"
    ) as caught:
        check("pure", FRAMES, padding="zero")
    assert "`padding: zero` would fit" in caught.value.hint


def test_a_difference_at_the_end_of_an_episode_is_found(tmp_path, monkeypatch):
    path = tmp_path / "stacked.py"
    late = "self.frames = [*self.frames[1:], self.np_random.random((2, 4))]"
    assert late in CODE
    path.write_text(CODE.replace(late, f"{late}; self.frames[0] *= self.time != 7"))
    with pytest.raises(RlcliError, match="in step 7 of environment"):
        check("Stacked", FRAMES)


@pytest.mark.slow
def test_a_run_whose_frames_do_not_fit_leaves_no_folder(tmp_path):
    recipe = {**LEARN, "environment": {"name": "stacked:Stacked", "zero": True}}
    with pytest.raises(RlcliError, match="they are not"):
        rlcli.train(recipe | {"replay": FRAMES}, run=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("is_stack", [True, False])
@pytest.mark.slow
def test_the_steps_of_a_data_set_are_compared_too(tmp_path, is_stack):
    values = np.arange(1.0, 7)
    frames = np.stack([np.maximum(values - age, 1) for age in (2, 1, 0)], axis=-1)
    observations = frames if is_stack else frames[:, ::-1]
    ends = np.arange(6) == 5
    data = DatasetArrays(
        {"": observations.astype(np.float32)},
        {"": np.zeros(6, np.int32)},
        np.ones(6, np.float32),
        ends,
        np.zeros(6, bool),
        {"": np.array([[5, 6, 7]] if is_stack else [[7, 6, 5]], np.float32)},
    )
    (tmp_path / "data.npz").write_bytes(dump_dataset(data))
    replay = {
        "name": "prioritized",
        "frames": {"stack": 3},
        "prefill": str(tmp_path / "data.npz"),
    }
    if is_stack:
        check("pure", replay)
        return
    with pytest.raises(RlcliError, match="in step 1 of the data set they are not"):
        check("pure", replay)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", ""),
        ("reward", "reward 0 and discount 1 for step 1 of .*, but .* has -0.5 and 1"),
        ("discount", "reward 1 and discount 0 for step 3 of .*, but .* has 1 and 1"),
        ("goal", "`desired_goal` of environment `stacked:goals` changes within"),
    ],
)
@pytest.mark.slow
def test_rewards_that_do_not_follow_from_goals_are_refused(wrong, message):
    if not message:
        check("goals", "hindsight")
        return
    with pytest.raises(RlcliError, match=message):
        check("goals", "hindsight", wrong=wrong)


def stacked_data(frames: int, padding: str = "repeat", episodes=(5, 4, 7)):
    """Episodes of the frames 1, 2, 3, …, each observation the newest of them."""
    rows = []
    for episode, length in enumerate(episodes):
        values = [100.0 * episode + step for step in range(1, length + 2)]
        before = [values[0] if padding == "repeat" else 0.0] * (frames - 1)
        padded = before + values
        rows += [[padded[i : i + frames] for i in range(length + 1)]]
    ends = np.cumsum(episodes) - 1
    number = sum(episodes)
    observations = np.array([row for each in rows for row in each[:-1]], "f4")
    return DatasetArrays(
        {"": observations},
        {"": np.zeros(number, int)},
        np.zeros(number, "f4"),
        np.isin(np.arange(number), ends),
        np.zeros(number, bool),
        {"": np.array([each[-1] for each in rows], "f4")},
    )


@pytest.mark.parametrize(
    ("padding", "num_envs", "episodes", "difference"),
    [
        ("repeat", 1, (5, 4, 7), None),
        ("zero", 1, (5, 4, 7), None),
        ("repeat", 2, (8, 8), None),  # each environment gets an episode
        ("repeat", 2, (5, 4, 7), (8, 0)),  # the second begins within an episode
        ("last", 1, (5, 4, 7), (0, 8)),
        ("other", 1, (5, 4, 7), (0, 0)),
    ],
)
def test_each_environment_gets_steps_whose_stacks_can_be_rebuilt(
    tmp_path, padding, num_envs, episodes, difference
):
    """`difference`: where the share starts, and its first step that differs."""
    written = "zero" if padding in ("zero", "other") else "repeat"
    data = stacked_data(3, written, episodes)
    if padding == "last":
        data.final_observations[""][1, 0] = 77.0  # of the second episode
    (tmp_path / "data.npz").write_bytes(dump_dataset(data))
    external = External(Box(-np.inf, np.inf, (3,)), Discrete(2))
    steps = Dataset.parse(str(tmp_path / "data.npz")).read(external, "a")
    stack = FrameStack(3, -1, "zero" if padding == "zero" else "repeat")
    found = [
        (start, at[0])
        for start, rows in first_steps._first_data(steps, 1, num_envs)
        if (at := first_steps._first_difference(rows, stack)) is not None
    ]
    assert found == ([] if difference is None else [difference])
