"""JAX adapters: convert traceable environments of other libraries into cores.

An adapter is an environment factory that is registered as `backend/`. Its first
parameter is the rest of the name, the id. There are two kinds.

An adapter of a library whose steps JAX can trace returns a core, with `pure_core`:

    @register("environment", "brax/")
    def brax(id: str, *, options: dict[str, Any] | None = None) -> Core

An adapter of any other library returns a vector on the host: with
`host.sync_host_environment` from `gymnasium.Env`s, or with `host.host_environment` from
a vector environment. It is registered with `adapter=True`:

    @register("environment", "dm_control/", adapter=True)
    def dm_control(id, num_envs, seeds, time_limit, timeout, rendering=False, *, …)

Both import their library when called, with `libraries.import_library`, and use
Gymnasium's spaces.
"""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.environments.adapters.host_errors import library_errors
from rlcli.environments.episode_info import RESERVED
from rlcli.environments.observation_image import with_render
from rlcli.errors import RlcliError, suggest
from rlcli.registry.libraries import contact_no_host, import_library
from rlcli.spaces import zeros
from rlcli.types import Array, ArrayTree, Core, Key, Step, TimeStep

_OF_TIMESTEPS = RESERVED | {"discount", "return"}  # what libraries repeat in `info`
_FLAG: Any = bool  # a dtype that the type stubs of Box lack


def pure_core(
    reset: Callable[[Key], tuple[ArrayTree, ArrayTree]],
    step: Callable[[ArrayTree, ArrayTree, Key], tuple],
    observation: gymnasium.Space,
    action: gymnasium.Space,
    *,
    costly_reset: bool = False,
    agents: int = 0,
) -> Core:
    """Builds a core from traceable functions without batch axis and auto-reset.

        reset(key) -> state, obs
        step(state, action, key) -> state, obs, reward, terminated, truncated[, info]

    `obs` is the next observation, also at the end of an episode. It is cast to the
    dtypes of its space, and rendered as an image. If the library truncates an episode,
    `last` is true and `discount` stays 1. Of `info` it logs single numbers and
    booleans. `costly_reset` and `agents` are those of `Core`; a game of
    several agents is over when all have terminated.
    """

    def convert(state: ArrayTree, obs: ArrayTree) -> tuple[ArrayTree, ArrayTree]:
        seen = jax.tree.map(
            lambda x, like: jnp.asarray(x).astype(like.dtype), obs, zeros(observation)
        )
        return jax.tree.map(_strong_type, state), seen

    def core_step(state: ArrayTree, action: ArrayTree, key: Key) -> Step:
        state, obs, reward, terminated, truncated, *info = step(state, action, key)
        state, obs = convert(state, obs)
        terminated = jnp.asarray(terminated, bool)
        return state, TimeStep(
            obs=obs,
            next_obs=obs,
            reward=jnp.asarray(reward, jnp.float32).reshape(terminated.shape),
            discount=1.0 - terminated.astype(jnp.float32),
            last=jnp.all(terminated) | jnp.asarray(truncated, bool),
            info=_single_numbers(info[0]) if info else {},
        )

    # The states of the result have the observation, of which images are drawn.
    return with_render(
        Core(
            reset=lambda key: convert(*reset(key)),
            step=core_step,
            observation=observation,
            action=action,
            costly_reset=costly_reset,
            agents=agents,
        )
    )


def _single_numbers(info: Mapping[str, Any]) -> dict[str, Array]:
    """The numbers and booleans by name, without arrays and what `TimeStep` has."""
    kinds = bool | int | float | np.generic | np.ndarray | jax.Array
    numbers = {
        name: jnp.asarray(value)
        for name, value in info.items()
        if name not in _OF_TIMESTEPS and isinstance(value, kinds)
    }
    return {
        name: value
        for name, value in numbers.items()
        if not value.shape and (value.dtype == bool or jnp.isrealobj(value))
    }


def _strong_type(leaf: Any) -> Array:
    """Returns an array whose dtype is not weak, unlike that of a Python scalar."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf  # a key
    return jax.lax.convert_element_type(leaf, leaf.dtype)


def import_jax_library(module: str, extra: str) -> ModuleType:
    """Imports a module of an extra. What it prints goes to stderr: stdout is data."""
    with contextlib.redirect_stdout(sys.stderr):
        import_library(module.partition(".")[0], extra)
        return import_library(module, extra)


def full_name(backend: str, id: str, known_ids: Iterable[str]) -> str:
    """`backend` and `id`; an error suggests the closest id if the library lacks it."""
    if id not in (known := sorted(known_ids)):
        message = f"there is no environment `{backend}{id}`"
        raise RlcliError(message, suggest(id, known, backend))
    return f"{backend}{id}"


def make_concrete(name: str, make: Callable[[], Any], hint: str) -> Any:
    """Calls the library with concrete arrays, also while rlcli is traced."""
    with (
        _offline_errors(f"environment `{name}`", "made", hint),
        contextlib.redirect_stdout(sys.stderr),
        jax.ensure_compile_time_eval(),
    ):
        return make()


def observation_shapes(name: str, reset: Callable[[Any], ArrayTree]) -> Any:
    """The shapes and dtypes of the observations that `reset(key)` returns."""
    with _tracing_errors(name, "reset"):
        return jax.eval_shape(reset, jax.random.key(0))


def library_core(
    name: str,
    reset: Callable[[Key], tuple[ArrayTree, ArrayTree]],
    step: Callable[[Any, Array, Key], tuple],
    observation: gymnasium.Space,
    action: gymnasium.Space,
    agents: int = 0,
) -> Core:
    """As `pure_core`, for a library whose resets cost more than a step.

    Errors while the library is traced name the environment.
    """

    def explained_reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        with _tracing_errors(name, "reset"):
            return reset(key)

    def explained_step(state: Any, choice: Array, key: Key) -> tuple:
        with _tracing_errors(name, "stepped"):
            return step(state, choice, key)

    return pure_core(
        explained_reset,
        explained_step,
        observation,
        action,
        costly_reset=True,
        agents=agents,
    )


def _tracing_errors(name: str, participle: str) -> AbstractContextManager[None]:
    hint = "the library may not support this version of JAX"
    return _offline_errors(f"environment `{name}`", participle, hint)


@contextlib.contextmanager
def _offline_errors(what: str, participle: str, hint: str) -> Iterator[None]:
    """As `library_errors`, and the library contacts no host."""
    with library_errors(what, participle, hint), contact_no_host(what):
        yield


def cached_core(make_core: Callable[..., Core]) -> Callable[..., Core]:
    """A decorator of adapters that makes a core once for each id and options.

    Parts are rebuilt in each trace, where the library must not make tracers. A cache
    needs keys that can be hashed, so an adapter gets its options as JSON stores them:
    arrays as numbers and lists.
    """

    @functools.cache
    def make(id: str, options: str) -> Core:
        with jax.ensure_compile_time_eval():
            return make_core(id, **json.loads(options))

    @functools.wraps(make_core)
    def adapter(id: str, **options: Any) -> Core:
        return make(id, json.dumps(options, default=_to_json_value))

    return adapter


def _to_json_value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    hint = "values of `options` are numbers, strings, booleans, and lists of these"
    raise RlcliError(f"`options` contains {value!r}", hint)


def bounded_box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A Box with bounds that are broadcast to its shape; `dtype` may be a JAX type."""
    kind: Any = np.dtype(jnp.dtype(dtype)).type
    low, high = (
        np.broadcast_to(np.asarray(bound).astype(kind), shape) for bound in (low, high)
    )
    if kind is np.bool_:  # Gymnasium has no bounds of this dtype
        return spaces.Box(0, 1, shape, _FLAG)
    return spaces.Box(low, high, shape, kind)


def space_like(array: Any) -> gymnasium.Space:
    """The space of observations of which only shape and dtype are known.

    The bounds are those of the dtype. A dict becomes a Dict.
    """
    if isinstance(array, dict):
        return spaces.Dict({name: space_like(member) for name, member in array.items()})
    low, high = -np.inf, np.inf
    if np.issubdtype(array.dtype, np.integer):
        low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
    return bounded_box(low, high, array.shape, array.dtype)


def convert_gymnax_space(space: Any) -> gymnasium.Space:
    """Converts a space of gymnax, or of a library that copied them."""
    members = getattr(space, "spaces", None)
    if isinstance(members, dict):
        return spaces.Dict(
            {name: convert_gymnax_space(member) for name, member in members.items()}
        )
    if members is not None:
        return spaces.Tuple([convert_gymnax_space(member) for member in members])
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    return bounded_box(space.low, space.high, space.shape, space.dtype)


def convert_spec(spec: Any) -> Any:
    """Converts a specification of Jumanji, which has those of dm_env as a model."""
    if hasattr(spec, "num_values"):
        sizes = np.asarray(spec.num_values)
        return (
            spaces.MultiDiscrete(sizes) if sizes.ndim else spaces.Discrete(int(sizes))
        )
    if hasattr(spec, "minimum"):
        return bounded_box(spec.minimum, spec.maximum, spec.shape, spec.dtype)
    if hasattr(spec, "shape"):
        return space_like(spec)
    members = {
        name: convert_spec(member)
        for name, member in vars(spec).items()
        if hasattr(member, "validate")
    }
    return spaces.Dict(members)


def read_fields(space: gymnasium.Space, value: Any) -> ArrayTree:
    """The fields of a struct that a Dict contains, in the shapes of the space."""
    if not isinstance(space, spaces.Dict):
        return jnp.reshape(value, space.shape)
    return {name: read_fields(space[name], getattr(value, name)) for name in space}
