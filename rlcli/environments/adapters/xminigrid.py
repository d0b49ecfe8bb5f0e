"""XLand-MiniGrid: the adapter behind `xminigrid/…`, compiled with the agent."""

import functools
import json
from typing import Any

import gymnasium
import jax

from rlcli.environments.adapters import jax_libraries
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key


@register("environment", "xminigrid/")
def xminigrid_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Grids of XLand-MiniGrid (Nikulin et al., 2024), compiled with the agent.

    Observations are the tiles and colours that the agent sees, as integers
    `[view_size, view_size, 2]`. `options` are parameters of the environment, such as
    `view_size` and `max_steps`, after which the library truncates an episode.
    https://github.com/corl-team/xland-minigrid
    """
    encoded = jax_libraries.encode_options(options)
    env, parameters, observation = _make_env(id, encoded)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        # The state keeps a key.
        timestep = env.reset(parameters, jax.random.key_data(key))
        return timestep, timestep.observation

    def step(timestep: Any, action: Array, key: Key) -> tuple:
        timestep = env.step(parameters, timestep, action)
        terminated = timestep.last() & (timestep.discount == 0)
        return (
            *(timestep, timestep.observation, timestep.reward),
            *(terminated, timestep.last()),
        )

    action = gymnasium.spaces.Discrete(int(env.num_actions(parameters)))
    name = f"xminigrid/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_env(id: str, options: str) -> tuple[Any, Any, gymnasium.Space]:
    """Returns the environment, its parameters and observations, from JSON."""
    library = jax_libraries.import_jax_library("xminigrid", "xminigrid")
    jax_libraries.check_id("xminigrid/", id, library.registered_environments())
    name = f"xminigrid/{id}"
    make = functools.partial(library.make, id, **json.loads(options))
    hint = "`options` are fields of its parameters in `xminigrid.environment`"
    env, parameters = jax_libraries.make_concrete(name, make, hint)
    shapes = jax_libraries.observation_shapes(
        name, lambda key: env.reset(parameters, jax.random.key_data(key)).observation
    )
    ids = max(library.core.constants.NUM_TILES, library.core.constants.NUM_COLORS)
    observation = jax_libraries.bounded_box(0, ids - 1, shapes.shape, shapes.dtype)
    return env, parameters, observation
