"""JAX adapters: Brax, Craftax, gymnax, Jumanji, Navix, Pgx and XLand-MiniGrid.

Those of MuJoCo Playground and JaxMARL are in files of their own.
"""

import dataclasses
import functools
import json
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.distributions.action_masks import MASK
from rlcli.environments.adapters import jax_libraries
from rlcli.environments.adapters.jax_core import pure_core
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key

BraxBackend = Literal["generalized", "spring", "positional", "mjx"]


@register("environment", "brax/", time_limit=1_000)
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
    keywords = (options or {}) | ({"backend": backend} if backend else {})
    env, observation = _make_brax(id, jax_libraries.encode_options(keywords))

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

    action = gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
    name = f"brax/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_brax(id: str, options: str) -> tuple[Any, gymnasium.Space]:
    """Returns the environment and its observation space, from options in JSON."""
    envs = jax_libraries.import_jax_library("brax.envs", "brax")
    jax_libraries.check_id("brax/", id, envs._envs)
    name = f"brax/{id}"
    make = functools.partial(envs.get_environment, id, **json.loads(options))
    hint = "`backend` and `options` are arguments of its class in `brax.envs`"
    env = jax_libraries.make_concrete(name, make, hint)
    shapes = jax_libraries.observation_shapes(name, lambda key: env.reset(key).obs)
    return env, jax_libraries.space_like(shapes)


_CRAFTAX = [
    f"Craftax-{kind}-v1"
    for kind in ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels")
]


@register("environment", "craftax/")
def craftax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Craftax and Craftax-Classic (Matthews et al., 2024), compiled with the agent.

    `options` are fields of `EnvParams` and `StaticEnvParams`. The environment's own
    limit, `max_timesteps`, truncates; `time_limit` can only shorten episodes. The first
    use of pixels takes minutes. https://github.com/MichaelTMatthews/Craftax
    """
    env, params = _make_craftax(id, jax_libraries.encode_options(options))
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

    convert = jax_libraries.convert_gymnax_space
    observation = convert(env.observation_space(params))
    action = convert(env.action_space(params))
    name = f"craftax/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_craftax(id: str, options: str) -> tuple[Any, Any]:
    """Returns the environment and its parameters, from options in JSON."""
    library = jax_libraries.import_jax_library("craftax.craftax_env", "craftax")
    jax_libraries.check_id("craftax/", id, _CRAFTAX)

    def make() -> tuple[Any, Any]:
        env = library.make_craftax_env_from_name(id, auto_reset=False)
        static, values = env.static_env_params, json.loads(options)
        names = {field.name for field in dataclasses.fields(static)} & values.keys()
        static = static.replace(**{name: values.pop(name) for name in names})
        env = type(env)(static_env_params=static)
        return env, env.default_params.replace(**values)

    hint = "`options` are fields of its `EnvParams` and `StaticEnvParams`"
    return jax_libraries.make_concrete(f"craftax/{id}", make, hint)


# By the dtype kind of a default: the kinds that values may have, and their name.
_ACCEPTED_KINDS = {"b": ("b", "bool"), "i": ("iu", "int"), "f": ("iuf", "float")}


@register("environment", "gymnax/")
def gymnax_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Environments of gymnax (https://github.com/RobertTLange/gymnax), compiled.

    `options` are fields of the parameters and keyword arguments of the class. The
    environment's own time limit (`max_steps_in_episode`) truncates; `time_limit` can
    only shorten episodes. Observations have the dtypes of their space.
    """
    env, params, observation, action = _make_gymnax(
        id, jax_libraries.encode_options(options)
    )

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        obs, state = env.reset_env(key, params)
        return state, obs

    def step(state: ArrayTree, action: Array, key: Key) -> tuple:
        obs, state, reward, done, info = env.step_env(key, state, action, params)
        terminated, truncated = _gymnax_ends(env, params, state, done)
        return state, obs, reward, terminated, truncated, info

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


@functools.cache
def _make_gymnax(
    id: str, options: str
) -> tuple[Any, Any, gymnasium.Space, gymnasium.Space]:
    """Returns the environment, its parameters and its spaces, from options in JSON.

    Cached, since each trace rebuilds parts; so no array of it may be a JAX tracer.
    """
    gymnax = jax_libraries.import_jax_library("gymnax", "gymnax")
    jax_libraries.check_id("gymnax/", id, gymnax.registered_envs)
    given_options = json.loads(options)

    def make() -> tuple[Any, Any, set[str]]:
        _, params = gymnax.make(id)
        fields = {field.name for field in dataclasses.fields(params)}
        keywords = {key: given_options[key] for key in given_options.keys() - fields}
        return *gymnax.make(id, **keywords), fields & given_options.keys()

    hint = "`options` are fields of its parameters and arguments of its class"
    env, params, fields = jax_libraries.make_concrete(f"gymnax/{id}", make, hint)
    with jax.ensure_compile_time_eval():
        changes = {
            key: _convert_gymnax_option(
                getattr(params, key),
                given_options[key],
                f"environment `gymnax/{id}`: `{key}`",
            )
            for key in fields
        }
        params = params.replace(**changes)
        convert = jax_libraries.convert_gymnax_space
        observation = convert(env.observation_space(params))
        return env, params, observation, convert(env.action_space(params))


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
def jumanji_adapter(
    id: str, *, action_mask: bool = True, options: dict[str, Any] | None = None
) -> Core:
    """Games and combinatorial problems of Jumanji (Bonnet et al., 2023), compiled.

    Observations are Dicts. With `action_mask` they contain the legal actions, if there
    is one flag for each action or combination of actions; combinations are then one
    Discrete action. `options` are arguments of the class. Rewards of several agents are
    added. https://github.com/instadeepai/jumanji
    """
    encoded = jax_libraries.encode_options(options)
    env, observation, action = _make_jumanji(id, action_mask, encoded)
    spec = env.action_spec

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, timestep = env.reset(jax.random.key_data(key))  # the state keeps a key
        return state, jax_libraries.read_fields(observation, timestep.observation)

    def step(state: Any, choice: Array, key: Key) -> tuple:
        if isinstance(action, spaces.Discrete) and spec.shape:
            choice = jnp.stack(jnp.unravel_index(choice, tuple(spec.num_values)))
        state, timestep = env.step(state, jnp.asarray(choice, spec.dtype))
        obs = jax_libraries.read_fields(observation, timestep.observation)
        terminated = timestep.last() & jnp.all(timestep.discount == 0)
        ends, extras = (terminated, timestep.last()), timestep.extras or {}
        return state, obs, jnp.sum(timestep.reward), *ends, extras

    name = f"jumanji/{id}"
    return jax_libraries.library_core(name, reset, step, observation, action)


@functools.cache
def _make_jumanji(id: str, mask: bool, options: str) -> tuple[Any, Any, Any]:
    """Returns the environment and its spaces, from options in JSON."""
    jumanji = jax_libraries.import_jax_library("jumanji", "jumanji")
    jax_libraries.check_id("jumanji/", id, jumanji.registered_environments())
    make = functools.partial(jumanji.make, id, **json.loads(options))
    hint = "`options` are arguments of its class in `jumanji.environments`"
    env = jax_libraries.make_concrete(f"jumanji/{id}", make, hint)
    observation = jax_libraries.convert_spec(env.observation_spec)
    action = jax_libraries.convert_spec(env.action_spec)
    members = dict(observation.spaces)
    flags = members.pop(MASK, None)
    if mask and flags is not None:
        if isinstance(action, spaces.MultiDiscrete) and flags.shape == (*action.nvec,):
            action = spaces.Discrete(int(action.nvec.prod()))
        if isinstance(action, spaces.Discrete):
            members[MASK] = jax_libraries.bounded_box(0, 1, (int(action.n),), bool)
    return env, spaces.Dict(members), action


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
    env, observation = _make_navix(id, view_name, jax_libraries.encode_options(options))

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
def _make_navix(id: str, view: str, options: str) -> tuple[Any, gymnasium.Space]:
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


@register("environment", "pgx/")
def pgx_adapter(id: str, *, action_mask: bool = True) -> Core:
    """Single-player games of Pgx (Koyama et al., 2023), compiled with the agent.

    The observation is a Dict: `observation`, that of Pgx, and `action_mask`, the legal
    actions; with `action_mask: false` it is only the former. An illegal action ends the
    game with Pgx's penalty. https://github.com/sotetsuk/pgx
    """
    env, observation, action = _make_pgx(id, action_mask)

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

    return pure_core(reset, step, observation, action)


@functools.cache
def _make_pgx(
    id: str, action_mask: bool
) -> tuple[Any, gymnasium.Space, gymnasium.Space]:
    """Returns the game and its spaces; cached, since each trace rebuilds parts."""
    pgx = jax_libraries.import_jax_library("pgx", "pgx")
    jax_libraries.check_id("pgx/", id, pgx.available_envs())
    with jax.ensure_compile_time_eval():
        env = pgx.make(id)
        if env.num_players != 1:
            raise RlcliError(
                f"environment `pgx/{id}` has {env.num_players} players, but rlcli "
                "trains one agent",
                "choose a single-player game, such as `pgx/2048` or `pgx/minatar-…`",
            )
        board = jax.eval_shape(env.init, jax.random.key(0)).observation
    space: gymnasium.Space = jax_libraries.space_like(board)
    if action_mask:
        mask = jax_libraries.bounded_box(0, 1, (env.num_actions,), bool)
        space = gymnasium.spaces.Dict({"observation": space, "action_mask": mask})
    return env, space, gymnasium.spaces.Discrete(env.num_actions)


@register("environment", "xminigrid/")
def xminigrid_adapter(id: str, *, options: dict[str, Any] | None = None) -> Core:
    """Grids of XLand-MiniGrid (Nikulin et al., 2024), compiled with the agent.

    Observations are the tiles and colours that the agent sees, as integers
    `[view_size, view_size, 2]`. `options` are parameters of the environment, such as
    `view_size` and `max_steps`, after which the library truncates an episode.
    https://github.com/corl-team/xland-minigrid
    """
    encoded = jax_libraries.encode_options(options)
    env, parameters, observation = _make_xminigrid(id, encoded)

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
def _make_xminigrid(id: str, options: str) -> tuple[Any, Any, gymnasium.Space]:
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
