"""Observation wrappers: one-hot, flat, selected, stacked or extended observations."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge
from gymnasium import spaces

from rlcli.distributions import action_masks
from rlcli.errors import RlcliError
from rlcli.preprocessing import Preprocess, compose, preprocess
from rlcli.preprocessing.frame_stack import stack_frames
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Count, Key, RenderState, Step, wrap

PRIVILEGED = "privileged"  # the member with what only critics see


@register("wrapper")
def one_hot(core: Core) -> Core:
    """One-hot encodes discrete observations; other observations stay unchanged."""
    return _apply_preprocess(core, preprocess.one_hot())


@register("wrapper")
def flatten(core: Core) -> Core:
    """Flattens any observation into one float32 vector, with discrete values one-hot.

    Networks flatten by themselves; use this for later wrappers and for other libraries.
    """
    return _apply_preprocess(core, preprocess.flatten())


@register("wrapper")
def entries(core: Core, *, of: list[Annotated[int, Ge(0)]]) -> Core:
    """Selects entries of observations by their indices along the last axis.

    With `of: [0, 2]`, CartPole shows positions without velocities.
    """
    return _apply_preprocess(core, preprocess.entries(of=of))


@register("wrapper")
def frame_stack(core: Core, *, frames: Count = 4, axis: int = -1) -> Core:
    """Frame stacking: concatenates the last `frames` observations along `axis`.

    The newest observation comes last. At the start of an episode the first observation
    is repeated (Mnih et al., 2015, https://doi.org/10.1038/nature14236).
    """
    step = preprocess.frame_stack(frames=frames, axis=axis)
    return stack_frames(core, [step] if frames > 1 else [])


@register("wrapper", compiled=True)
def expose_state(core: Core) -> Core:
    """Adds the environment state to the observation, for planning with `core.step`.

    A Dict: `observation`, and `state`, a tuple of the state's arrays in the order of
    `jax.tree.leaves`. `core.step` can continue from this state.
    """
    state, _ = jax.eval_shape(core.reset, jax.random.key(0))
    leaves = jax.tree.leaves(_without_details(state))
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves):
        message = "wrapper `expose_state` does not support a state with a random key"
        raise RlcliError(message, "remove it from `wrappers`")

    def observe(state: ArrayTree, obs: ArrayTree) -> dict[str, ArrayTree]:
        leaves = jax.tree.leaves(_without_details(state))
        return {"observation": obs, "state": tuple(leaves)}

    state_space = spaces.Tuple([_box_of_dtype(leaf) for leaf in leaves])
    observation, _ = action_masks.split_mask(core.observation)
    space = spaces.Dict({"observation": observation, "state": state_space})
    return _map_observation(core, observe, space)


@register("wrapper", compiled=True)
def expose_numbers(core: Core, numbers: Mapping[str, Array]) -> Core:
    """Adds the numbers in `environment.each` to the observation, as `privileged`.

    For critics: a policy selects its members with `preprocess: [{name: member, of:
    observation}]`, and acts where the numbers are unknown (Pinto et al., 2018,
    https://arxiv.org/abs/1710.06542). The observation becomes a Dict of `observation`
    and `privileged`, or remains a Dict with one more member: float32 `[n]`, the numbers
    of the episode in the order of their names.
    """
    if not numbers:
        raise RlcliError(
            "wrapper `expose_numbers` needs numbers that differ between environments "
            "or episodes",
            "for example `environment.each: {mass: {uniform: [0.5, 2.0]}}`",
        )
    observation, _ = action_masks.split_mask(core.observation)
    is_dict = isinstance(observation, spaces.Dict)
    if is_dict and PRIVILEGED in observation.spaces:
        message = f"the observation has a member `{PRIVILEGED}` already"
        raise RlcliError(message, "remove wrapper `expose_numbers`")

    def observe(state: ArrayTree, obs: ArrayTree) -> dict[str, ArrayTree]:
        values = [jnp.asarray(numbers[name], jnp.float32) for name in sorted(numbers)]
        members = obs if is_dict else {"observation": obs}
        return {**members, PRIVILEGED: jnp.stack(values)}

    members = observation.spaces if is_dict else {"observation": observation}
    box = spaces.Box(-np.inf, np.inf, (len(numbers),), np.float32)
    space = spaces.Dict({**members, PRIVILEGED: box})
    return _map_observation(core, observe, space)


def _without_details(state: ArrayTree) -> ArrayTree:
    """The state without the details for rendering, as in training."""

    def is_rendered(node: Any) -> bool:
        return isinstance(node, RenderState)

    return jax.tree.map(
        lambda node: node.state if is_rendered(node) else node,
        state,
        is_leaf=is_rendered,
    )


def _apply_preprocess(core: Core, step: Preprocess) -> Core:
    """Applies a function of `preprocess` to the observations of the core."""
    stacked_core = stack_frames(core, [step] if step.frames > 1 else [])
    space, function = compose([step], stacked_core.observation)
    return _map_observation(stacked_core, lambda _, obs: function(obs), space)


def _map_observation(
    core: Core,
    observe: Callable[[ArrayTree, ArrayTree], ArrayTree],
    space: gymnasium.Space,
) -> Core:
    """Replaces the core's observation by `observe(state, obs)`, an element of `space`.

    An action mask is not part of `obs`; it is passed through.
    """

    def observe_with_mask(state: ArrayTree, obs: ArrayTree) -> ArrayTree:
        return action_masks.add_mask(
            observe(state, action_masks.remove_mask(obs)), action_masks.get_mask(obs)
        )

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = core.reset(key)
        return state, observe_with_mask(state, obs)

    def step(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Step:
        state, timestep = core.step(state, action, noise)
        obs = observe_with_mask(state, timestep.next_obs)
        return state, timestep._replace(obs=obs, next_obs=obs)

    _, mask = action_masks.split_mask(core.observation)
    space, keeps = action_masks.add_mask(space, mask), ["render", "costly_reset"]
    return wrap(core, keeps=keeps, reset=reset, step=step, observation=space)


def _box_of_dtype(leaf: jax.ShapeDtypeStruct) -> spaces.Box:
    """A Box with all values of an array of this shape and dtype."""
    if leaf.dtype == bool:
        return spaces.Box(0, 1, leaf.shape, leaf.dtype.type)
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        limits = jnp.iinfo(leaf.dtype)
        return spaces.Box(limits.min, limits.max, leaf.shape, leaf.dtype.type)
    return spaces.Box(-np.inf, np.inf, leaf.shape, leaf.dtype.type)
