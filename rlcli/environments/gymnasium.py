"""Gymnasium: the adapter behind `gymnasium/…`, for any environment registered there.

The id is Gymnasium's own: `CartPole-v1`, `CartPole` (its newest version),
`namespace/Name-v0`, or `module:Id`, which imports the module that registers it.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, parse_env_id

from rlcli.environments.host import EXTRA, vector
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.types import Environment

OWN_LIMIT = "default"  # the time limit that the id is registered with
OURS = {  # keywords of `gymnasium.make` that have a name of ours
    "max_episode_steps": "`time_limit` says how long an episode may be",
    "render_mode": "`rlcli render` draws what was learnt",
    "disable_env_checker": "the adapter does its own checks",
}


@register("environment", "gymnasium/", adapter=True, time_limit=OWN_LIMIT)
def gymnasium_adapter(
    id: str,
    num_envs: int,
    seeds: int,
    time_limit: int | Literal["default"] | None,
    timeout: float | None,
    rendering: bool = False,
    *,
    options: dict[str, Any] | None = None,
) -> Environment:
    """An environment of Gymnasium's (https://gymnasium.farama.org), on the host.

    `options` are Gymnasium's own: the keywords that `gymnasium.make` hands on to it.
    Every episode is seeded, so a run resumes exactly wherever the environment repeats
    itself. Spaces are Discrete or Box; actions beyond a Box are clipped to it.
    """
    name = f"environment `gymnasium/{id}`"
    options = dict(options or {})
    for key in OURS.keys() & options:
        raise RlcliError(f"{name}: `{key}` is no option here", OURS[key])
    spec = _spec(id, name)
    steps = -1 if time_limit is None else time_limit  # -1 is Gymnasium's "none"
    limits = {} if time_limit == OWN_LIMIT else {"max_episode_steps": steps}
    mode = _picture_mode(name, spec, limits | options) if rendering else {}

    def make() -> gymnasium.Env:
        return _make(name, spec, limits | mode | options)

    return vector(name, make, num_envs, seeds, timeout)


def imports(id: str) -> bool:
    """Whether naming `id` imports a module, which a recipe needs to be trusted for."""
    return ":" in id


def _spec(id: str, name: str) -> EnvSpec:
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
    if version is None:
        newest = find_highest_version(namespace, short)
        plain = plain if newest is None else f"{plain}-v{newest}"
    found = gymnasium.registry.get(plain)
    if found is None:
        raise RlcliError(f"there is no {name}", _meant(plain, namespace, short))
    return found


def _meant(plain: str, namespace: str | None, short: str) -> str:
    """A hint: the versions of that name, or the nearest id."""
    versions = [
        f"`gymnasium/{each.id}`"
        for each in gymnasium.registry.values()
        if (each.namespace, each.name) == (namespace, short)
    ]
    if versions:
        return "there is " + ", ".join(sorted(versions))
    close = difflib.get_close_matches(plain, gymnasium.registry, n=1)
    if close:
        return f"did you mean `gymnasium/{close[0]}`?"
    return (
        "`gymnasium/MODULE:ID` imports the module that registers it; "
        "`gymnasium.pprint_registry()` lists what there is"
    )


def _make(name: str, spec: EnvSpec, keywords: dict[str, Any]) -> gymnasium.Env:
    """One environment; whatever goes wrong is said by its name."""
    try:
        return gymnasium.make(spec, disable_env_checker=True, **keywords)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise RlcliError(f"{name} needs more: {error}", EXTRA) from error
    except Exception as error:  # foreign code may raise anything
        raise RlcliError(
            f"{name} cannot be made: {type(error).__name__}: {error}",
            "`options` are the keywords of the environment itself",
        ) from error


def _picture_mode(name: str, spec: EnvSpec, keywords: dict[str, Any]) -> dict[str, str]:
    """The keyword that makes an environment draw pictures, where it can."""
    env = _make(name, spec, keywords)
    env.close()
    if "rgb_array" not in env.metadata.get("render_modes", []):
        raise RlcliError(f"{name} cannot be rendered: it draws no pictures")
    return {"render_mode": "rgb_array"}
