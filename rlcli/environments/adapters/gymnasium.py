"""Gymnasium: the adapter behind `gymnasium/…`, for any registered environment.

The id is that of Gymnasium: `CartPole-v1`, `CartPole` (the newest version),
`namespace/Name-v0`, or `module:Id`, which imports the module that registers it.

An import path may name a class of a `gymnasium.Env`, or a function that returns one,
which need no registration.
"""

import copy
import difflib
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import gymnasium
from gymnasium.envs.registration import (
    EnvSpec,
    WrapperSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
    parse_env_id,
)

from rlcli.environments.adapters import atari as arcade
from rlcli.environments.adapters.goals import (
    FunctionPath,
    GoalReward,
    host_goal_reward,
    import_goal_reward,
)
from rlcli.environments.adapters.host import host_environment, sync_host_environment
from rlcli.environments.adapters.host_errors import ExternalEnvironment, close_or_warn
from rlcli.environments.adapters.pools import NO_TIME_LIMIT, AsyncVector, NativeVector
from rlcli.environments.adapters.reset_options import (
    RandomNumbers,
    draw_from,
    with_reset_options,
)
from rlcli.environments.adapters.text import TextMode, fix_shapes
from rlcli.errors import RlcliError
from rlcli.registry import plugins, register, register_class_adapter, user_code
from rlcli.registry.class_options import class_options
from rlcli.registry.libraries import import_library, install_command
from rlcli.types import Environment

REGISTERED_LIMIT = "default"  # the time limit that the id is registered with
RESERVED_OPTIONS = {  # arguments of `gymnasium.make` that rlcli sets itself
    "max_episode_steps": "set `time_limit` instead",
    "render_mode": "use `rlcli render` to render a policy",
    "disable_env_checker": "the adapter does its own checks",
    "vectorization_mode": "set `vectorization` instead",
}
# Keys of `environment` in a recipe that are no options of a factory.
RECIPE_KEYS = {"name", "each", "wrappers"}
_EXTRA = "gymnasium"
# The extra that installs an environment's dependencies, by the package of its class.
# The libraries of extras that Gymnasium does not register itself, by their ids.
_LIBRARIES = {
    ("MiniGrid-", "BabyAI-"): "minigrid",
    (
        *("PointMaze_", "AntMaze_", "FrankaKitchen", "Adroit"),
        *("Fetch", "HandReach", "HandManipulate"),
    ): "gymnasium_robotics",
}
INSTALL_EXTRAS = {
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.box2d": "box2d",
    "gymnasium_robotics": "robotics",
    "minigrid": "minigrid",
    "ale_py": arcade.EXTRA,
}


def _registered_steps(id: str) -> int | None:
    """The time limit that an id is registered with, if there is one."""
    try:
        return _find_spec(id, f"environment `gymnasium/{id}`").max_episode_steps
    except RlcliError:  # building the environment says why
        return None


@register(
    "environment",
    "gymnasium/",
    adapter=True,
    time_limit=REGISTERED_LIMIT,
    episode_steps=_registered_steps,
)
def gymnasium_adapter(
    id: str,
    num_envs: int,
    seeds: int,
    time_limit: int | Literal["default"] | None,
    timeout: float | None,
    rendering: bool = False,
    random_numbers: RandomNumbers = MappingProxyType({}),
    wrappers: Sequence[WrapperSpec] = (),
    *,
    options: dict[str, Any] | None = None,
    vectorization: Literal["sync", "async", "own"] = "sync",
    atari: dict[str, Any] | Literal["standard", "raw"] = "standard",
    goal_reward: FunctionPath | None = None,
    text: TextMode = "drop",
) -> Environment:
    """Environments of Gymnasium (https://gymnasium.farama.org), on the host.

    `options` are keyword arguments that `gymnasium.make` passes to the environment.
    Every episode is seeded, so a run resumes exactly if the environment is
    deterministic given its seed. Actions are clipped to the bounds of a Box.

    `vectorization` steps environments sequentially (`sync`), in one process each with
    shared memory for observations (`async`), or with the environment's own vector
    implementation (`own`). With `own`, a resumed run starts new episodes, and in a
    vector that resets one step late every episode starts with a step without effect.

    `atari` is for ids in `ALE/`: the standard preprocessing (Mnih et al., 2015,
    https://doi.org/10.1038/nature14236; Machado et al., 2018,
    https://arxiv.org/abs/1709.06009), changes to its arguments, or none of it (`raw`).
    ALE's own vector returns the same observations, except that the first frame stacks
    of an episode contain black frames. It supports neither `raw` nor `scale_obs`.

    For the replay `hindsight`, rewards of other goals come from the environment's
    `compute_reward` and `compute_terminated`, called on the host, or else from
    `goal_reward`: `module:function`, compiled, of an achieved and a desired goal, which
    returns a reward and a discount.

    Numbers that have a distribution in `each` are drawn by every episode, and go to
    `reset(options={name: number})`, with any name that the environment reads there.

    Members of a Dict that have no fixed shape, such as the `mission` of MiniGrid, are
    dropped, with a note. `text: tokens` keeps texts as the ids of their words.

    `wrappers` of the recipe that are a `gymnasium.Wrapper`, by import path, wrap each
    environment. The limit of the id is inside of them, a `time_limit` outside.
    """
    name = f"environment `gymnasium/{id}`"
    options = _check_options(name, options)
    spec = _find_spec(id, name)
    limits, wrappers = _limit_steps(
        NO_TIME_LIMIT if time_limit is None else time_limit, wrappers
    )
    use_native = vectorization == "own" and not rendering
    if spec.namespace == arcade.NAMESPACE:
        steps = limits.pop("max_episode_steps", None)
        spec = arcade.preprocess_spec(spec, atari, steps, use_native)
    elif atari != "standard":
        raise RlcliError(
            f"{name} has no option `atari`",
            f"`atari` is for ids in `{arcade.NAMESPACE}/`, such as "
            "`gymnasium/ALE/Pong-v5`",
        )
    draw = draw_from(random_numbers)
    external = ExternalEnvironment(name, _install_extra(spec), timeout, draw)
    spec = with_reset_options(spec, options, random_numbers)
    if vectorization == "own" and random_numbers:
        message = f"{name}: its own vector cannot draw numbers for each episode"
        raise RlcliError(message, "use `vectorization: sync` or `async`")
    if use_native:
        if wrappers:
            message = f"{name}: `{wrappers[0].name}` wraps single environments"
            raise RlcliError(message, "set `vectorization` to `sync` or `async`")
        return _native_vector(external, spec, limits, num_envs, seeds)
    make = _Maker(external, spec, limits, tuple(wrappers), text)
    return _copies(make, vectorization, (num_envs, seeds), rendering, goal_reward)


@register_class_adapter("environment", gymnasium.Env, adapter=True, time_limit=None)
def gymnasium_class_adapter(
    name: str, env_class: Callable[..., gymnasium.Env]
) -> Callable:
    """Returns the factory of a class of environments, or of a function that makes them.

    Its options are the parameters of the class or function, and `vectorization`: `sync`
    or `async`, as in `gymnasium_adapter`. Parameters whose names have another meaning
    in a recipe, such as `name` and `num_envs`, are set under `options`, where any may
    be.
    """
    own_options: dict[str, inspect.Parameter] = {}

    def factory(
        num_envs: int,
        seeds: int,
        time_limit: int | Literal["default"] | None,
        timeout: float | None,
        rendering: bool = False,
        random_numbers: RandomNumbers = MappingProxyType({}),
        wrappers: Sequence[WrapperSpec] = (),
        *,
        options: dict[str, Any] | None = None,
        vectorization: Literal["sync", "async"] = "sync",
        goal_reward: FunctionPath | None = None,
        text: TextMode = "drop",
        **direct: Any,
    ) -> Environment:
        label = f"environment `{name}`"
        options = _check_options(label, options)
        # Compared as text: a default may be an array.
        defaults = {key: repr(each.default) for key, each in own_options.items()}
        direct = {k: v for k, v in direct.items() if repr(v) != defaults[k]}
        if twice := options.keys() & direct:
            message = f"{label}: `{min(twice)}` is set twice"
            raise RlcliError(message, "set it beside `name` or under `options`")
        draw = draw_from(random_numbers)
        external = ExternalEnvironment(label, _EXTRA, timeout, draw)
        limits, wrappers = _limit_steps(time_limit, wrappers)
        spec = EnvSpec(f"{env_class.__name__}-v0", entry_point=env_class)
        spec = with_reset_options(spec, direct | options, random_numbers)
        make = _Maker(external, spec, limits, tuple(wrappers), text)
        return _copies(make, vectorization, (num_envs, seeds), rendering, goal_reward)

    signature = inspect.signature(factory, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    taken = RECIPE_KEYS | RESERVED_OPTIONS.keys() | {each.name for each in own}
    own_options.update(class_options(env_class, taken))
    factory.__signature__ = signature.replace(parameters=[*own, *own_options.values()])
    factory.__doc__ = env_class.__doc__
    factory.__module__ = env_class.__module__
    return factory


def _limit_steps(
    limit: int | Literal["default"] | None, wrappers: Sequence[WrapperSpec]
) -> tuple[dict[str, Any], Sequence[WrapperSpec]]:
    """The time limit as a keyword of `gymnasium.make`, or outside of all wrappers."""
    if not isinstance(limit, int):
        return {}, wrappers
    if not wrappers or limit == NO_TIME_LIMIT:
        return {"max_episode_steps": limit}, wrappers
    keywords = {"max_episode_steps": limit}
    outer = WrapperSpec("TimeLimit", "gymnasium.wrappers:TimeLimit", keywords)
    return {"max_episode_steps": NO_TIME_LIMIT}, (*wrappers, outer)


def _check_options(name: str, options: dict[str, Any] | None) -> dict[str, Any]:
    """The keyword arguments of an environment; refuses those that rlcli sets."""
    for key in RESERVED_OPTIONS.keys() & (options or {}):
        message = f"{name}: `options` cannot contain `{key}`"
        raise RlcliError(message, RESERVED_OPTIONS[key])
    return dict(options or {})


def _find_spec(id: str, name: str) -> EnvSpec:
    """Finds the spec of an id; the newest version if the id has none."""
    module, _, plain = id.rpartition(":")
    if module:
        try:
            user_code.import_module(module)
        except (Exception, SystemExit) as error:
            explained = plugins.import_error(name, module, error)
            extra = INSTALL_EXTRAS.get(module)
            if extra is not None and isinstance(error, ImportError):
                explained.hint = install_command(extra)
            raise explained from error
    try:
        namespace, short, version = parse_env_id(plain)
    except gymnasium.error.Error as error:
        raise RlcliError(f"{name}: {error}") from error
    if namespace == arcade.NAMESPACE:
        arcade.register_games()
    if not module and find_highest_version(namespace, short) is None:
        _register_library(short)
    if version is None:
        newest = find_highest_version(namespace, short)
        plain = plain if newest is None else f"{plain}-v{newest}"
    spec = gymnasium.registry.get(plain)
    if spec is None:
        hint = _suggest_id(namespace, short)
        if callable(getattr(sys.modules.get(module), plain, None)):
            hint = f"`{module}:{plain}` needs no registration: leave out `gymnasium/`"
        raise RlcliError(f"there is no {name}", hint)
    return spec


def _register_library(short: str) -> None:
    """Registers the library of an extra that has environments with such names.

    Its module is the installed one, so no recipe brings it: it needs no trust.
    """
    for prefixes, module in _LIBRARIES.items():
        if short.startswith(prefixes):
            gymnasium.register_envs(import_library(module, INSTALL_EXTRAS[module]))


def _suggest_id(namespace: str | None, short: str) -> str:
    """Returns a hint: the versions of that name, or the closest id."""
    specs, wanted = gymnasium.registry.values(), (namespace, short)
    versions = [spec.id for spec in specs if (spec.namespace, spec.name) == wanted]
    if versions:
        return "choose from " + ", ".join(
            f"`gymnasium/{id}`" for id in sorted(versions)
        )
    # Without versions, since equal versions would make different names similar.
    names = {get_env_id(spec.namespace, spec.name, None): spec.id for spec in specs}
    full_name = get_env_id(namespace, short, None)
    close = difflib.get_close_matches(full_name, names, n=1, cutoff=0.7)
    if close:
        return f"did you mean `gymnasium/{names[close[0]]}`?"
    return (
        f"`gymnasium/{arcade.NAMESPACE}/…` are Atari games; "
        "`gymnasium/MODULE:ID` imports the module that registers the id; "
        "`gymnasium.pprint_registry()` lists all ids"
    )


def _install_extra(spec: EnvSpec) -> str:
    """Returns the extra of rlcli that installs an environment's dependencies."""
    entry = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extras = [INSTALL_EXTRAS[each] for each in INSTALL_EXTRAS if entry.startswith(each)]
    return (*extras, _EXTRA)[0]


class _Maker(NamedTuple):
    """Makes one environment, with its wrappers; errors name it."""

    external: ExternalEnvironment
    spec: EnvSpec
    keywords: dict[str, Any]
    wrappers: tuple[WrapperSpec, ...]  # of the recipe, the innermost first
    text: TextMode

    def __call__(self) -> gymnasium.Env:
        """Makes an environment whose observations have shapes."""
        return self.make_all()[0]

    def make_all(self) -> tuple[gymnasium.Env, tuple[WrapperSpec, ...]]:
        """The environment, and all wrappers around what `gymnasium.make` returns."""
        external = self.external
        make = functools.partial(gymnasium.make, disable_env_checker=True)
        env = _call_external(external, make, self.spec, **self.keywords)
        env = _wrap(external, env, self.wrappers)
        fixes = fix_shapes(external.name, env.observation_space, self.text)
        return _wrap(external, env, fixes), (*self.wrappers, *fixes)


def _wrap(
    external: ExternalEnvironment, env: gymnasium.Env, wrappers: Sequence[WrapperSpec]
) -> gymnasium.Env:
    for each in wrappers:
        label = f"{external.name}: wrapper `{each.name}`"
        wrap = load_env_creator(each.entry_point)
        named = external._replace(name=label)
        env = _call_external(named, wrap, env, **each.kwargs or {})
        if not isinstance(env, gymnasium.Env):
            kind = type(env).__name__
            raise RlcliError(f"{label} returned {kind}, not an environment")
    return env


def _call_external(
    external: ExternalEnvironment, function: Any, /, *args: Any, **keywords: Any
) -> Any:
    """Calls a function of Gymnasium; errors name the environment.

    The first two parameters are positional-only, so that no user keyword collides.
    Keywords are copied, because an environment may change its options in place.
    """
    try:
        return function(*args, **copy.deepcopy(keywords))
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        hint = install_command(external.install)
        message = f"{external.name} lacks a dependency: {error}"
        raise RlcliError(message, hint) from error
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise RlcliError(
            f"{external.name} cannot be made: {plugins.reason(error)}",
            "its options are keyword arguments of the library's class or function",
        ) from error


def _copies(
    make: _Maker,
    vectorization: str,
    sizes: tuple[int, int],
    rendering: bool,
    goal_reward: str | None,
) -> Environment:
    """Builds copies of an environment, stepped in this process or in one each."""
    external = make.external
    if rendering:
        make = make._replace(keywords={**_render_mode(make), **make.keywords})
    goals = import_goal_reward(external.name, goal_reward) if goal_reward else None
    if vectorization == "async" and not rendering:
        return _async_vector(make, sizes, goals)
    return sync_host_environment(external, make, *sizes, goals)


@typing.no_type_check  # what checks annotations at run time cannot be pickled
def _async_vector(
    maker: _Maker, sizes: tuple[int, int], goal_reward: GoalReward | None
) -> Environment:
    """Builds a vector with one process for each environment."""
    external, (example, wrappers) = maker.external, maker.make_all()
    close_or_warn(external.name, example)
    make_plain = functools.partial(
        gymnasium.make, maker.spec, disable_env_checker=True, **maker.keywords
    )

    # Local, so that it is pickled by value, with objects of Gymnasium only: unpickling
    # those of rlcli would import JAX.
    def make() -> gymnasium.Env:
        env = make_plain()
        for each in wrappers:
            wrap: Any = load_env_creator(each.entry_point)
            env = wrap(env, **each.kwargs or {})
        return env

    return host_environment(
        external,
        (example.observation_space, example.action_space),
        lambda count: AsyncVector(make, count, external.timeout),
        *sizes,
        make,
        goal_reward=goal_reward or host_goal_reward(external, example),
    )


def _native_vector(
    external: ExternalEnvironment,
    spec: EnvSpec,
    keywords: dict[str, Any],
    num_envs: int,
    seeds: int,
) -> Environment:
    """Builds one native vector of the environment for each seed."""
    if "num_envs" in spec.kwargs:  # `make_vec` would take it for the vector's
        message = f"{external.name}: `options` cannot contain `num_envs`"
        raise RlcliError(message, "set `num_envs` of `environment`, outside `options`")
    if spec.vector_entry_point is None:
        hint = "use `vectorization: sync` or `async`, which work for any environment"
        raise RlcliError(f"{external.name} has no vector implementation", hint)
    make_vector = functools.partial(_call_external, external, gymnasium.make_vec)
    make = functools.partial(
        make_vector, spec, num_envs, "vector_entry_point", **keywords
    )
    example = make()
    close_or_warn(external.name, example)
    spaces = example.single_observation_space, example.single_action_space

    def make_all(count: int) -> NativeVector:
        return NativeVector(make, count // num_envs)

    return host_environment(external, spaces, make_all, num_envs, seeds)


def _render_mode(make: _Maker) -> dict[str, str]:
    """Returns `{"render_mode": "rgb_array"}` if the environment supports it."""
    env, entry_point = make(), make.spec.entry_point
    close_or_warn(make.external.name, env)
    can_render = "rgb_array" in env.metadata.get("render_modes", [])
    if inspect.isfunction(entry_point):  # it may choose the mode itself
        parameters = inspect.signature(entry_point).parameters.values()
        can_render &= any(
            each.name == "render_mode" or each.kind is each.VAR_KEYWORD
            for each in parameters
        )
    return {"render_mode": "rgb_array"} if can_render else {}
