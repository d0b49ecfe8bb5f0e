"""What the adapters of JAX libraries share: ids, options, spaces and errors.

Parts are rebuilt in each trace, so adapters cache what they make. They pass options as
JSON, because a cache needs keys that can be hashed.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.environments.adapters.jax_core import pure_core
from rlcli.errors import RlcliError, suggest
from rlcli.registry import plugins
from rlcli.registry.libraries import contact_no_host, import_library
from rlcli.types import Array, ArrayTree, Core, Key

_FLAG: Any = bool  # a dtype that the type stubs of Box lack


def import_jax_library(module: str, extra: str) -> ModuleType:
    """Imports a module of an extra. What it prints goes to stderr: stdout is data."""
    with contextlib.redirect_stdout(sys.stderr):
        import_library(module.partition(".")[0], extra)
        return import_library(module, extra)


def check_id(backend: str, id: str, known_ids: Iterable[str]) -> None:
    """Raises an error that suggests the closest id unless the library has `id`."""
    if id not in (known := sorted(known_ids)):
        message = f"there is no environment `{backend}{id}`"
        raise RlcliError(message, suggest(id, known, backend))


def make_concrete(name: str, make: Callable[[], Any], hint: str) -> Any:
    """Calls the library with concrete arrays, also while rlcli is traced."""
    with (
        _library_errors(f"environment `{name}`", "made", hint),
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
    return _library_errors(f"environment `{name}`", participle, hint)


@contextlib.contextmanager
def _library_errors(what: str, participle: str, hint: str) -> Iterator[None]:
    """Turns errors of the library into one line each, and lets it contact no host."""
    try:
        with contact_no_host(what):
            yield
    except (MemoryError, RlcliError):  # `limit_building` explains the first
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        message = f"{what} cannot be {participle}: {plugins.reason(error)}"
        raise RlcliError(message, hint) from error


def encode_options(options: dict[str, Any] | None) -> str:
    """Encodes `options` as JSON, arrays as numbers and lists."""
    return json.dumps(options or {}, default=_to_json_value)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    raise RlcliError(
        f"`options` contains {value!r}",
        "values of `options` are numbers, strings, booleans, and lists of these",
    )


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
