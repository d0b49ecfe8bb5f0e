"""Navix: the adapter behind `navix/…`, compiled with the agent."""

import functools
import json
from typing import Any, Literal

import gymnasium
import jax

from rlcli.environments.adapters import jax_libraries
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key


@register("environment", "navix/")
def navix_adapter(
    id: str,
    *,
    view: Literal["symbolic", "categorical", "rgb"] = "symbolic",
    first_person: bool = False,
    options: dict[str, Any] | None = None,
) -> Core:
    """Grid worlds of Navix (Pignatelli et al., 2024), compiled with the agent.

    `view` and `first_person` choose the observation, `options` are other arguments of
    `navix.make`; its `max_steps`, by default 4 · height · width (100 in Navix 0.7),
    truncates, and `time_limit` can only shorten episodes. https://github.com/epignatelli/navix
    """
    view_name = view + "_first_person" * first_person
    env, observation = _make_env(id, view_name, jax_libraries.encode_options(options))

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        timestep = env.reset(jax.random.key_data(key))  # the state keeps a key
        return timestep, timestep.observation

    def step(timestep: Any, action: Array, key: Key) -> tuple:
        timestep = env._step(timestep, action)  # `step` resets by itself
        ends = timestep.is_termination(), timestep.is_truncation()
        return timestep, timestep.observation, timestep.reward, *ends, timestep.info

    action = gymnasium.spaces.Discrete(len(env.action_set))
    name = f"navix/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_env(id: str, view: str, options: str) -> tuple[Any, gymnasium.Space]:
    """Returns the environment and its observation space, from options in JSON."""
    navix = jax_libraries.import_jax_library("navix", "navix")
    jax_libraries.check_id("navix/", id, navix.registry())
    name = f"navix/{id}"
    keywords = {"observation_fn": getattr(navix.observations, view)}
    make = functools.partial(navix.make, id, **keywords | json.loads(options))
    hint = "`options` are arguments of `navix.make`, such as `max_steps`"
    env = jax_libraries.make_concrete(name, make, hint)
    shapes = jax_libraries.observation_shapes(
        name, lambda key: env.reset(key).observation
    )
    # Navix 0.7 declares a lower maximum than the id of the player, and 0 for walls.
    high = max(int(env.observation_space.maximum), int(navix.entities.EntityIds.PLAYER))
    low = -1 if view.startswith("categorical") else 0
    return env, jax_libraries.bounded_box(low, high, shapes.shape, shapes.dtype)
