"""MuJoCo Playground: the adapter behind `playground/…`, compiled with the agent."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments.adapters import jax_libraries
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key


class _EpisodeState(NamedTuple):
    """The state of the library, the steps, and the randomized leaves of the model."""

    state: Any
    steps: Array
    model: dict[str, Array]


@register("environment", "playground/")
@jax_libraries.cached_core
def playground_adapter(
    id: str,
    *,
    impl: Literal["jax", "warp"] = "jax",
    domain_randomization: bool = False,
    options: dict[str, Any] | None = None,
) -> Core:
    """Robots of MuJoCo Playground (Zakka et al., 2025), compiled with the agent.

    `impl` is the physics: MJX in JAX, or MuJoCo Warp, which needs an NVIDIA GPU.
    `options` change the environment's configuration, with dots for its sections, as in
    `reward_config.scales.energy`. Episodes are truncated after its `episode_length`.
    With `domain_randomization`, every episode has another robot, drawn by the library's
    randomizer. Robots other than those of the control suite have to be downloaded
    before. Actions are in [-1, 1]. https://playground.mujoco.org
    """
    module = "mujoco_playground._src.mjx_env"
    robots = jax_libraries.import_jax_library(module, "playground").MENAGERIE_PATH
    library = jax_libraries.import_jax_library("mujoco_playground", "playground")
    name = jax_libraries.full_name("playground/", id, library.registry.ALL_ENVS)
    overrides = (options or {}) | {"impl": impl}
    hint = "`options` change the configuration of `mujoco_playground.registry`"
    if id not in library.dm_control_suite.ALL_ENVS and not robots.exists():
        # The library would download them at once: a recipe must not contact a host.
        load = f"import mujoco_playground as m; m.registry.load('{id}')"
        raise RlcliError(
            f"environment `{name}` needs robots that are not on this machine",
            f'`python -c "{load}"` lets the library download them',
        )
    make = functools.partial(library.registry.load, id, config_overrides=overrides)
    env = jax_libraries.make_concrete(name, make, hint)
    episode_length = int(env._config.episode_length)
    randomizer = library.registry.get_domain_randomizer(id)
    if domain_randomization and randomizer is None:
        message = f"environment `{name}` has no domain randomization"
        raise RlcliError(message, "remove `domain_randomization`")

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        model = {}
        if domain_randomization:
            key, model_key = jax.random.split(key)
            model = _randomize(randomizer, env.mjx_model, model_key)
        reset_env = _with_model(env, env.reset)
        state = reset_env(model, jax.random.key_data(key))  # the state keeps a key
        return _EpisodeState(state, jnp.int32(0), model), state.obs

    def step(episode: Any, action: Array, key: Key) -> tuple:
        del key  # the state has one
        state, steps, model = episode
        # Copied: environments change these dicts in place.
        copies = {"metrics": dict(state.metrics), "info": dict(state.info)}
        state = _with_model(env, env.step)(model, state.replace(**copies), action)
        steps += 1
        episode = _EpisodeState(state, steps, model)
        is_over = steps >= episode_length
        rest = state.reward, state.done != 0, is_over, state.metrics
        return episode, state.obs, *rest

    shapes = jax_libraries.observation_shapes(
        name, lambda key: env.reset(jax.random.key_data(key)).obs
    )
    observation = jax_libraries.space_like(shapes)
    action = gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
    return jax_libraries.library_core(name, reset, step, observation, action)


def _randomize(randomizer: Callable, model: Any, key: Key) -> dict[str, Array]:
    """Draws the randomized leaves of a model, by their paths."""
    model, axes = randomizer(model, jax.random.key_data(key)[None])
    randomized = {
        jax.tree_util.keystr(path)
        for path, axis in jax.tree_util.tree_leaves_with_path(axes)
        if axis == 0
    }
    leaves = {
        jax.tree_util.keystr(path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(model)
    }
    return {path: leaves[path][0] for path in sorted(randomized)}


def _with_model(env: Any, function: Callable) -> Callable:
    """`function(model, *args)` of an environment with these leaves in its model."""

    def call(model: dict[str, Array], *args: Any) -> Any:
        original = env.unwrapped._mjx_model
        env.unwrapped._mjx_model = jax.tree_util.tree_map_with_path(
            lambda path, leaf: model.get(jax.tree_util.keystr(path), leaf), original
        )
        try:
            return function(*args)
        finally:
            env.unwrapped._mjx_model = original

    return call
