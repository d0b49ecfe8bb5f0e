"""Gymnasium: the adapter behind `gymnasium/…`, for any environment registered there.

The id is Gymnasium's own: `CartPole-v1`, `CartPole` (its newest version),
`namespace/Name-v0`, or `module:Id`, which imports the module that registers it.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    parse_env_id,
)

from rlcli.environments.adapters import atari as arcade
from rlcli.environments.adapters.host import host_environment, sync_host_environment
from rlcli.environments.adapters.host_vector import ExternalEnvironment
from rlcli.environments.adapters.pools import NO_TIME_LIMIT, AsyncVector, NativeVector
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Environment

REGISTERED_LIMIT = "default"  # the time limit that the id is registered with
RESERVED_OPTIONS = {  # keywords of `gymnasium.make` that have a name of ours
    "max_episode_steps": "`time_limit` says how long an episode may be",
    "render_mode": "`rlcli render` draws what was learnt",
    "disable_env_checker": "the adapter does its own checks",
    "vectorization_mode": "`vectorization` says how several are stepped",
    "num_envs": "it stands beside `options`",
    "id": "`name` says which environment it is",
}
# What brings the packages that environments need: by the package they are in.
INSTALL_EXTRAS = {
    "gymnasium.envs.mujoco": "rlcli[mujoco]",
    "gymnasium.envs.box2d": "rlcli[box2d]",
    "ale_py": arcade.INSTALL,
}


@register("environment", "gymnasium/", adapter=True, time_limit=REGISTERED_LIMIT)
def gymnasium_adapter(
    id: str,
    num_envs: int,
    seeds: int,
    time_limit: int | Literal["default"] | None,
    timeout: float | None,
    rendering: bool = False,
    *,
    options: dict[str, Any] | None = None,
    vectorization: Literal["sync", "async", "own"] = "sync",
    atari: dict[str, Any] | Literal["standard", "raw"] = "standard",
) -> Environment:
    """An environment of Gymnasium's (https://gymnasium.farama.org), on the host.

    `options` are Gymnasium's own: the keywords that `gymnasium.make` hands on to it.
    Every episode is seeded, so a run resumes exactly wherever the environment repeats
    itself. Actions beyond a Box are clipped to it.

    Several are stepped one after the other (`sync`), each in a process of its own, with
    memory that they share for observations (`async`), or by a vector of the
    environment's author (`own`), whose episodes a resumed run has to begin anew; of
    one that begins them a step late every episode opens with a step that does nothing.

    `atari` is for ids in `ALE/`: the standard preprocessing (Mnih et al., 2015,
    https://doi.org/10.1038/nature14236; Machado et al., 2018,
    https://arxiv.org/abs/1709.06009), changes to its keywords, or none of it (`raw`).
    ALE's own vector shows the same, but for the first pictures of an episode's stacks,
    which are black; it can do neither `raw` nor `scale_obs`.
    """
    name = f"environment `gymnasium/{id}`"
    options = dict(options or {})
    for key in RESERVED_OPTIONS.keys() & options:
        raise RlcliError(f"{name}: `{key}` is no option here", RESERVED_OPTIONS[key])
    spec = _find_spec(id, name)
    limit = NO_TIME_LIMIT if time_limit is None else time_limit
    limits = {"max_episode_steps": limit} if isinstance(limit, int) else {}
    use_native = vectorization == "own" and not rendering
    if spec.namespace == arcade.NAMESPACE:
        steps = limits.pop("max_episode_steps", None)
        spec = arcade.preprocess_spec(spec, atari, steps, use_native)
    elif atari != "standard":
        raise RlcliError(
            f"{name} has no option `atari`",
            f"it is for ids in `{arcade.NAMESPACE}/`, such as `gymnasium/ALE/Pong-v5`",
        )
    external = ExternalEnvironment(name, _install_extra(spec), timeout)
    if use_native:
        return _native_vector(external, spec, limits | options, num_envs, seeds)
    mode = _render_mode(external, spec, limits | options) if rendering else {}
    keywords = limits | mode | options
    if vectorization == "async" and not rendering:
        return _async_vector(external, spec, keywords, num_envs, seeds)
    make = functools.partial(_make_env, external, spec, keywords)
    return sync_host_environment(external, make, num_envs, seeds)


def imports_module(id: str) -> bool:
    """Whether naming `id` imports a module, which a recipe needs to be trusted for."""
    return ":" in id


def _find_spec(id: str, name: str) -> EnvSpec:
    """What Gymnasium has under an id; the newest version where it gives none."""
    module, _, plain = id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise RlcliError(
                f"{name}: module `{module}` cannot be imported: {error}",
                "install the package that registers the environment",
            ) from error
    try:
        namespace, short, version = parse_env_id(plain)
    except gymnasium.error.Error as error:
        raise RlcliError(f"{name}: {error}") from error
    if namespace == arcade.NAMESPACE:
        arcade.register_games()
    if version is None:
        newest = find_highest_version(namespace, short)
        plain = plain if newest is None else f"{plain}-v{newest}"
    spec = gymnasium.registry.get(plain)
    if spec is None:
        raise RlcliError(f"there is no {name}", _suggest_id(namespace, short))
    return spec


def _suggest_id(namespace: str | None, short: str) -> str:
    """A hint: the versions of that name, or the nearest id."""
    specs = gymnasium.registry.values()
    versions = [
        f"`gymnasium/{spec.id}`"
        for spec in specs
        if (spec.namespace, spec.name) == (namespace, short)
    ]
    if versions:
        return "there is " + ", ".join(sorted(versions))
    # Without versions, which would make any two names of one version alike.
    names = {get_env_id(spec.namespace, spec.name, None): spec.id for spec in specs}
    full_name = get_env_id(namespace, short, None)
    close = difflib.get_close_matches(full_name, names, n=1, cutoff=0.7)
    if close:
        return f"did you mean `gymnasium/{names[close[0]]}`?"
    return (
        f"`gymnasium/{arcade.NAMESPACE}/…` are Atari's games; "
        "`gymnasium/MODULE:ID` imports the module that registers it; "
        "`gymnasium.pprint_registry()` lists what there is"
    )


def _install_extra(spec: EnvSpec) -> str:
    """The extra of rlcli that brings what an environment needs."""
    entry = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extras = (
        extra for package, extra in INSTALL_EXTRAS.items() if entry.startswith(package)
    )
    return next(extras, "rlcli[gymnasium]")


def _make_env(
    external: ExternalEnvironment, spec: EnvSpec, keywords: dict[str, Any]
) -> gymnasium.Env:
    """One environment; whatever goes wrong is said by its name."""
    return _call_external(
        external, gymnasium.make, spec, disable_env_checker=True, **keywords
    )


def _call_external(
    external: ExternalEnvironment, function: Any, /, *args: Any, **keywords: Any
) -> Any:
    """What a function of Gymnasium's gives; what it raises is said by `external`'s
    name.

    The first two have no names, which keywords of a user's could repeat.
    """
    try:
        return function(*args, **keywords)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        hint = f'pip install "{external.install}"'
        raise RlcliError(f"{external.name} needs more: {error}", hint) from error
    except Exception as error:  # foreign code may raise anything
        raise RlcliError(
            f"{external.name} cannot be made: {type(error).__name__}: {error}",
            "`options` are the keywords of the environment itself",
        ) from error


def _async_vector(
    external: ExternalEnvironment,
    spec: EnvSpec,
    keywords: dict[str, Any],
    num_envs: int,
    seeds: int,
) -> Environment:
    """A process for each environment."""
    example = _make_env(external, spec, keywords)
    example.close()
    # Nothing of ours is pickled: a process that imports rlcli imports JAX, too.
    plain = functools.partial(
        gymnasium.make, spec, disable_env_checker=True, **keywords
    )
    return host_environment(
        external,
        (example.observation_space, example.action_space),
        lambda count: AsyncVector(plain, count, external.timeout),
        num_envs,
        seeds,
    )


def _native_vector(
    external: ExternalEnvironment,
    spec: EnvSpec,
    keywords: dict[str, Any],
    num_envs: int,
    seeds: int,
) -> Environment:
    """A vector of the environment's author for each seed."""
    if spec.vector_entry_point is None:
        raise RlcliError(
            f"{external.name} has no vector of its own",
            "`vectorization: sync` or `async` steps several of any environment",
        )
    make = functools.partial(
        _call_external,
        external,
        gymnasium.make_vec,
        spec,
        num_envs,
        "vector_entry_point",
        **keywords,
    )
    example = make()
    example.close()
    return host_environment(
        external,
        (example.single_observation_space, example.single_action_space),
        lambda count: NativeVector(make, count // num_envs),
        num_envs,
        seeds,
    )


def _render_mode(
    external: ExternalEnvironment, spec: EnvSpec, keywords: dict[str, Any]
) -> dict[str, str]:
    """The keyword that makes an environment draw pictures, where it can."""
    env = _make_env(external, spec, keywords)
    env.close()
    can = "rgb_array" in env.metadata.get("render_modes", [])
    return {"render_mode": "rgb_array"} if can else {}
