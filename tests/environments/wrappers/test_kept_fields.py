"""A wrapper of environments keeps what it declares, and nothing else."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import rlcli
from rlcli import registry
from rlcli.environments.adapters.host import to_host_environment
from rlcli.environments.canonical_border import canonical_environment
from rlcli.environments.observation_image import with_render
from rlcli.environments.vector import keyed_environment, vector
from rlcli.preprocessing.frame_stack import stack_frames
from rlcli.preprocessing.preprocess import frame_stack
from rlcli.types import (
    Core,
    Environment,
    External,
    FrameStack,
    TimeStep,
    missing_render,
    wrap,
)
from rlcli.utils import simulation

BOX = spaces.Box(-1, 1, (4,), np.float32)
GOALS = spaces.Dict({"achieved_goal": BOX, "desired_goal": BOX})
PACKAGES = "environments", "preprocessing", "assembly", "evaluation", "utils"
TASK = {"reset", "step", "observation", "action", "draw", "agents"}
CORE = {*Core._fields} - TASK
VECTOR = {*Environment._fields} - TASK


def full_core(
    observation: spaces.Space = BOX, action=BOX, render=lambda state: state["image"]
) -> Core:
    """A core with every optional field; its state is a dict."""

    def observe():
        return jax.tree.map(jnp.zeros_like, observation.sample())

    def reset(key):
        return {"image": jnp.int32(7)}, observe()

    def step(state, action, noise):
        timestep = TimeStep(
            observe(), observe(), jnp.float32(1), jnp.float32(1), jnp.bool_(False), {}
        )
        return state, timestep._replace(info={"lives": jnp.float32(3)})

    return Core(
        reset,
        step,
        observation,
        BOX,
        render,
        goal_reward=lambda achieved, desired: (jnp.float32(1), jnp.float32(1)),
        frame_stack=FrameStack(4, -1, "repeat"),
        external=External(observation, BOX),
        costly_reset=True,
    )


def optional_fields(result) -> set[str]:
    """The optional fields that do not have their default."""
    names = CORE if isinstance(result, Core) else VECTOR - {"num_envs", "host"}
    default = result._field_defaults
    return {name for name in names if getattr(result, name) is not default[name]}


SAME = {"render", "goal_reward", "frame_stack", "costly_reset"}
# Every wrapper of recipes: its options, and what is as true of its result.
WRAPPERS = {
    "action_repeat": ({}, {"render", "costly_reset"}),
    "clip_reward": ({}, SAME),
    "discrete_actions": ({"bins": 2}, SAME),
    "entries": ({"of": [0]}, {"render", "costly_reset"}),
    "expose_numbers": ({"numbers": {"mass": 1.0}}, {"render", "costly_reset"}),
    "expose_state": ({}, {"render", "costly_reset"}),
    "flatten": ({}, {"render", "costly_reset"}),
    # The latter two are its own.
    "frame_stack": ({"frames": 2}, SAME - {"goal_reward"} | {"external"}),
    "log_return": ({}, SAME),
    "observation_noise": ({"scale": 1.0}, {"render", "costly_reset"}),
    "one_hot": ({}, {"render", "costly_reset"}),
    "previous": ({}, {"render", "costly_reset"}),
    "real_actions": ({}, SAME),
    "reward_noise": ({"scale": 1.0}, SAME - {"goal_reward"}),
    "scale_reward": ({"factor": 2.0}, SAME),
    "sticky_actions": ({}, SAME),
    "terminal_on_life_loss": ({}, SAME - {"goal_reward"}),
}


def test_every_wrapper_declares_what_it_keeps():
    assert {*WRAPPERS} == {*registry.names("wrapper")}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_of_recipes_keeps_what_it_declares_and_drops_the_rest(name):
    options, kept = WRAPPERS[name]
    core = full_core()
    result = registry.find("wrapper", name).factory(core, **options)
    assert optional_fields(result) == kept
    state, _ = result.reset(jax.random.key(0))
    state, _ = result.step(
        state,
        jax.tree.map(jnp.zeros_like, result.action.sample()),
        result.draw(jax.random.key(0)),
    )
    assert result.render(state) == 7  # the state of the core, wherever it is


def vector_of(core: Core) -> Environment:
    return vector(lambda values: core, 2)


# A vector has `parameters` of its own.
SAME_VECTOR = {"render", "render_final", "goal_reward", "frame_stack", "external"}
SAME_VECTOR |= {"parameters"}
# The wrappers around cores and vectors that rlcli itself adds.
OTHERS = {
    "canonical core": (canonical_environment, ("owner",), SAME | {"external"}),
    "canonical vector": (
        lambda core: canonical_environment(vector_of(core), "owner"),
        (),
        SAME_VECTOR,
    ),
    "keyed vector": (lambda core: keyed_environment(vector_of(core)), (), SAME_VECTOR),
    "keyed core": (simulation._keyed_core, (), SAME | {"external"}),
    "statistics of a core": (
        simulation._record_statistics,
        (True,),
        SAME | {"external"},
    ),
    "statistics of a vector": (
        lambda core: simulation._record_statistics(vector_of(core), True),
        (),
        SAME_VECTOR,
    ),
    "stack of a core": (
        stack_frames,
        ([frame_stack(frames=2)],),
        (SAME | {"external"}) - {"goal_reward"},
    ),
    "stack of a vector": (
        lambda core: stack_frames(vector_of(core), [frame_stack(frames=2)]),
        (),
        SAME_VECTOR - {"goal_reward"},
    ),
    "host": (lambda core: to_host_environment(vector_of(core), 1), (), SAME_VECTOR),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_wrappers_that_rlcli_adds_keep_what_is_still_true(name):
    function, arguments, kept = OTHERS[name]
    is_canonical = name.startswith("canonical")
    core = full_core(GOALS) if is_canonical else full_core()
    assert optional_fields(function(core, *arguments)) == kept


def test_the_stack_of_frames_describes_the_result_and_not_the_inner_environment():
    stacked = stack_frames(full_core(), [frame_stack(frames=3)])
    assert stacked.frame_stack == FrameStack(3, -1, "repeat")
    assert stacked.external is not None and stacked.external.frame == BOX


def test_an_image_of_the_observation_keeps_everything_else():
    drawn = with_render(full_core(render=missing_render))
    assert optional_fields(drawn) == CORE - {"parameters"}
    state, _ = drawn.reset(jax.random.key(0))
    assert drawn.render(state).shape[1:] == (320, 3)


def test_a_host_environment_with_another_state_needs_another_host():
    host = to_host_environment(vector_of(full_core()), 1)
    with pytest.raises(ValueError, match="expected a `host`"):
        wrap(host, inner_state=lambda state: state[0])


def test_a_misspelt_field_to_keep_is_refused():
    with pytest.raises(ValueError, match="goal_rewards"):
        wrap(full_core(), keeps=["goal_rewards"])


def test_no_environment_is_changed_without_saying_what_stays():
    """`_replace` with a new `step` would keep every field, also those now wrong."""
    found = [
        f"{path.name}:{node.lineno}"
        for package in PACKAGES
        for path in (Path(rlcli.__file__).parent / package).rglob("*.py")
        if "_replace(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "_replace"
        and "step" in {keyword.arg for keyword in node.keywords}
    ]
    assert not found
