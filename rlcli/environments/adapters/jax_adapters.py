"""JAX adapters: Brax, Craftax, gymnax, Jumanji, Navix, Pgx and XLand-MiniGrid.

Those of MuJoCo Playground and JaxMARL are in files of their own.
"""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.distributions.action_masks import MASK
from rlcli.environments.adapters.jax_libraries import (
    bounded_box,
    cached_core,
    convert_gymnax_space,
    convert_spec,
    full_name,
    import_jax_library,
    library_core,
    make_concrete,
    observation_shapes,
    pure_core,
    read_fields,
    space_like,
)
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key

BraxBackend = Literal["generalized", "spring", "positional", "mjx"]


@register("environment", "brax/", time_limit=1_000)
@cached_core
def brax_adapter(
    id: str,
    *,
    backend: BraxBackend | None = None,
    options: dict[str, Any] | None = None,
) -> Core:
    """Robots of Brax (Freeman et al., 2021), compiled with the agent.

    `backend` is the physics: null is that of the environment, for most `generalized`.
    `options` are keyword arguments of the class. Actions are in [-1, 1]. The default
    time limit is 1000 steps, as in Brax's training. https://github.com/google/brax
    """
    envs = import_jax_library("brax.envs", "brax")
    name = full_name("brax/", id, envs._envs)
    keywords = (options or {}) | ({"backend": backend} if backend else {})
    make = functools.partial(envs.get_environment, id, **keywords)
    hint = "`backend` and `options` are arguments of its class in `brax.envs`"
    env = make_concrete(name, make, hint)
    shapes = observation_shapes(name, lambda key: env.reset(key).obs)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state = env.reset(key)
        return state, state.obs

    def step(state: Any, action: Array, key: Key) -> tuple:
        del key  # only the initial state is random
        # Copied: environments of Brax change these dicts in place.
        copies = {"metrics": dict(state.metrics), "info": dict(state.info)}
        state = env.step(state.replace(**copies), action)
        is_over = state.done != 0
        return state, state.obs, state.reward, is_over, False, state.metrics

    action = spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
    return library_core(name, reset, step, space_like(shapes), action)


_CRAFTAX = [
    f"Craftax-{kind}-v1"
    for kind in ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels")
]


@register("environment", "craftax/")
@cached_core
def craftax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Craftax and Craftax-Classic (Matthews et al., 2024), compiled with the agent.

    `options` are fields of `EnvParams` and `StaticEnvParams`. The environment's own
    limit, `max_timesteps`, truncates; `time_limit` can only shorten episodes. The first
    use of pixels takes minutes. https://github.com/MichaelTMatthews/Craftax
    """
    library = import_jax_library("craftax.craftax_env", "craftax")
    name = full_name("craftax/", id, _CRAFTAX)

    def make() -> tuple[Any, Any]:
        env = library.make_craftax_env_from_name(id, auto_reset=False)
        static, values = env.static_env_params, dict(options or {})
        names = {field.name for field in dataclasses.fields(static)} & values.keys()
        static = static.replace(**{name: values.pop(name) for name in names})
        env = type(env)(static_env_params=static)
        return env, env.default_params.replace(**values)

    hint = "`options` are fields of its `EnvParams` and `StaticEnvParams`"
    env, params = make_concrete(name, make, hint)
    endless = params.replace(max_timesteps=np.iinfo(np.int32).max)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset_env(jax.random.key_data(key), params)
        return state, obs

    def step(state: Any, action: Array, key: Key) -> tuple:
        obs, state, reward, done, info = env.step_env(
            jax.random.key_data(key), state, action, params
        )
        terminated = env.is_terminal(state, endless)
        return state, obs, reward, terminated, done & ~terminated, info

    observation = convert_gymnax_space(env.observation_space(params))
    action = convert_gymnax_space(env.action_space(params))
    return library_core(name, reset, step, observation, action)


# By the dtype kind of a default: the kinds that values may have, and their name.
_ACCEPTED_KINDS = {"b": ("b", "bool"), "i": ("iu", "int"), "f": ("iuf", "float")}


@register("environment", "gymnax/")
@cached_core
def gymnax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Environments of gymnax (https://github.com/RobertTLange/gymnax), compiled.

    `options` are fields of the parameters and keyword arguments of the class. The
    environment's own time limit (`max_steps_in_episode`) truncates; `time_limit` can
    only shorten episodes. Observations have the dtypes of their space.
    """
    gymnax = import_jax_library("gymnax", "gymnax")
    name = full_name("gymnax/", id, gymnax.registered_envs)
    given = options or {}

    def make() -> tuple[Any, Any, set[str]]:
        _, params = gymnax.make(id)
        fields = {field.name for field in dataclasses.fields(params)}
        keywords = {key: given[key] for key in given.keys() - fields}
        return *gymnax.make(id, **keywords), fields & given.keys()

    hint = "`options` are fields of its parameters and arguments of its class"
    env, params, fields = make_concrete(name, make, hint)
    changes = {
        key: _convert_gymnax_option(
            getattr(params, key), given[key], f"environment `{name}`: `{key}`"
        )
        for key in fields
    }
    params = params.replace(**changes)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset_env(key, params)
        return state, obs

    def step(state: ArrayTree, action: Array, key: Key) -> tuple:
        obs, state, reward, done, info = env.step_env(key, state, action, params)
        terminated, truncated = _gymnax_ends(env, params, state, done)
        return state, obs, reward, terminated, truncated, info

    observation = convert_gymnax_space(env.observation_space(params))
    action = convert_gymnax_space(env.action_space(params))
    return pure_core(reset, step, observation, action)


def _gymnax_ends(env: Any, params: Any, state: Any, done: Array) -> tuple[Array, Array]:
    """Returns whether an episode terminated, and whether it is truncated.

    A `step` of six values distinguishes the two. In gymnax before 1.0, `step` returns
    five values and `done` means either, so the state determines which.
    """
    if hasattr(env, "is_truncated"):
        return done, env.is_truncated(state, params)
    endless = params.replace(max_steps_in_episode=np.iinfo(np.int32).max)
    is_terminal = done & env.is_terminal(state, endless)
    return is_terminal, done & ~is_terminal


def _convert_gymnax_option(default: Any, value: Any, owner: str) -> Any:
    """Converts a value that replaces a default; it needs the shape of the default."""
    like = np.asarray(default)
    kinds, description = _ACCEPTED_KINDS[like.dtype.kind]
    try:
        array = np.asarray(value)
        fits = array.shape == like.shape and array.dtype.kind in kinds
    except ValueError:  # lists of different lengths
        fits = False
    if not fits:
        shape_note = f" of shape {like.shape}" if like.ndim else ""
        raise RlcliError(f"{owner} is {value!r}", f"expected {description}{shape_note}")
    return jnp.asarray(value, like.dtype) if like.ndim else value


@register("environment", "jumanji/")
@cached_core
def jumanji_adapter(
    id: str, *, action_mask: bool = True, options: dict[str, Any] | None = None
) -> Core:
    """Games and combinatorial problems of Jumanji (Bonnet et al., 2023), compiled.

    Observations are Dicts. With `action_mask` they contain the legal actions, if there
    is one flag for each action or combination of actions; combinations are then one
    Discrete action. `options` are arguments of the class. Rewards of several agents are
    added. https://github.com/instadeepai/jumanji
    """
    jumanji = import_jax_library("jumanji", "jumanji")
    name = full_name("jumanji/", id, jumanji.registered_environments())
    make = functools.partial(jumanji.make, id, **(options or {}))
    hint = "`options` are arguments of its class in `jumanji.environments`"
    env = make_concrete(name, make, hint)
    spec = env.action_spec
    observation, action = _jumanji_spaces(env, action_mask)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, timestep = env.reset(jax.random.key_data(key))  # the state keeps a key
        return state, read_fields(observation, timestep.observation)

    def step(state: Any, choice: Array, key: Key) -> tuple:
        if isinstance(action, spaces.Discrete) and spec.shape:
            choice = jnp.stack(jnp.unravel_index(choice, tuple(spec.num_values)))
        state, timestep = env.step(state, jnp.asarray(choice, spec.dtype))
        obs = read_fields(observation, timestep.observation)
        terminated = timestep.last() & jnp.all(timestep.discount == 0)
        ends, extras = (terminated, timestep.last()), timestep.extras or {}
        return state, obs, jnp.sum(timestep.reward), *ends, extras

    return library_core(name, reset, step, observation, action)


def _jumanji_spaces(env: Any, mask: bool) -> tuple[Any, Any]:
    """The spaces of observations and actions."""
    observation = convert_spec(env.observation_spec)
    action = convert_spec(env.action_spec)
    members = dict(observation.spaces)
    flags = members.pop(MASK, None)
    if mask and flags is not None:
        if isinstance(action, spaces.MultiDiscrete) and flags.shape == (*action.nvec,):
            action = spaces.Discrete(int(action.nvec.prod()))
        if isinstance(action, spaces.Discrete):
            members[MASK] = bounded_box(0, 1, (int(action.n),), bool)
    return spaces.Dict(members), action


@register("environment", "navix/")
@cached_core
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
    navix = import_jax_library("navix", "navix")
    name = full_name("navix/", id, navix.registry())
    observe = getattr(navix.observations, view + "_first_person" * first_person)
    keywords = {"observation_fn": observe} | (options or {})
    make = functools.partial(navix.make, id, **keywords)
    hint = "`options` are arguments of `navix.make`, such as `max_steps`"
    env = make_concrete(name, make, hint)
    shapes = observation_shapes(name, lambda key: env.reset(key).observation)
    # Navix 0.7 declares a lower maximum than the id of the player, and 0 for walls.
    high = max(int(env.observation_space.maximum), int(navix.entities.EntityIds.PLAYER))
    low = -1 if view == "categorical" else 0
    observation = bounded_box(low, high, shapes.shape, shapes.dtype)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        timestep = env.reset(jax.random.key_data(key))  # the state keeps a key
        return timestep, timestep.observation

    def step(timestep: Any, action: Array, key: Key) -> tuple:
        timestep = env._step(timestep, action)  # `step` resets by itself
        ends = timestep.is_termination(), timestep.is_truncation()
        return timestep, timestep.observation, timestep.reward, *ends, timestep.info

    action = spaces.Discrete(len(env.action_set))
    return library_core(name, reset, step, observation, action)


@register("environment", "pgx/")
@cached_core
def pgx_adapter(id: str, *, action_mask: bool = True) -> Core:
    """Single-player games of Pgx (Koyama et al., 2023), compiled with the agent.

    The observation is a Dict: `observation`, that of Pgx, and `action_mask`, the legal
    actions; with `action_mask: false` it is only the former. An illegal action ends the
    game with Pgx's penalty. https://github.com/sotetsuk/pgx
    """
    pgx = import_jax_library("pgx", "pgx")
    name = full_name("pgx/", id, pgx.available_envs())
    env = pgx.make(id)
    if env.num_players != 1:
        raise RlcliError(
            f"environment `{name}` has {env.num_players} players, but rlcli "
            "trains one agent",
            "choose a single-player game, such as `pgx/2048` or `pgx/minatar-…`",
        )

    def observe(state: Any) -> ArrayTree:
        if not action_mask:
            return state.observation
        mask = state.legal_action_mask
        return {"observation": state.observation, "action_mask": mask}

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state = env.init(key)
        return state, observe(state)

    def step(state: Any, action: Array, key: Key) -> tuple:
        state = env.step(state, action, key)
        reward = state.rewards[0]
        return state, observe(state), reward, state.terminated, state.truncated

    board = jax.eval_shape(env.init, jax.random.key(0)).observation
    observation = space_like(board)
    if action_mask:
        mask = bounded_box(0, 1, (env.num_actions,), bool)
        observation = spaces.Dict({"observation": observation, "action_mask": mask})
    return pure_core(reset, step, observation, spaces.Discrete(env.num_actions))


@register("environment", "xminigrid/")
@cached_core
def xminigrid_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Grids of XLand-MiniGrid (Nikulin et al., 2024), compiled with the agent.

    Observations are the tiles and colours that the agent sees, as integers
    `[view_size, view_size, 2]`. `options` are parameters of the environment, such as
    `view_size` and `max_steps`, after which the library truncates an episode.
    https://github.com/corl-team/xland-minigrid
    """
    library = import_jax_library("xminigrid", "xminigrid")
    name = full_name("xminigrid/", id, library.registered_environments())
    make = functools.partial(library.make, id, **(options or {}))
    hint = "`options` are fields of its parameters in `xminigrid.environment`"
    env, parameters = make_concrete(name, make, hint)

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

    shapes = observation_shapes(name, lambda key: reset(key)[1])
    ids = max(library.core.constants.NUM_TILES, library.core.constants.NUM_COLORS)
    observation = bounded_box(0, ids - 1, shapes.shape, shapes.dtype)
    action = spaces.Discrete(int(env.num_actions(parameters)))
    return library_core(name, reset, step, observation, action)
