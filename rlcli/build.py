"""Build: from a recipe to an environment and an agent. Alone knows all kinds of parts.

Nothing a recipe says may be scheduled is a number before the program runs: `parts`
makes environment and agent as they are at a given time, inside the compiled program.
The factories are pure and cheap; only a host environment is made once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp

from rlcli import agents, registry, schedules, spaces
from rlcli.documents import Place
from rlcli.environments.vector import vector
from rlcli.errors import RlcliError, nearest
from rlcli.networks import functions, memory
from rlcli.networks.heads import Head
from rlcli.optimizers import grouped
from rlcli.policies.sampled import random
from rlcli.policies.warmup import warmed_up
from rlcli.progress import Setup, midnight
from rlcli.recipe import DEFAULT, SHARED, Part, Recipe
from rlcli.types import Agent, Clock, Environment, Network, Policy
from rlcli.updaters import Spaces


def build(
    recipe: Recipe, seeds: Sequence[int] | None = None, *, rendering: bool = False
) -> Setup:
    """Environment and agent of a recipe, for these seeds (the recipe's, if None).

    Every misfit of two parts is an `RlcliError` that names both.
    """
    train = recipe.train
    if seeds is None:
        seeds = range(train.seed, train.seed + train.seeds)
    environment_at = _environments(recipe, len(seeds), rendering)
    agent_at = _agents(recipe, environment_at(midnight()))

    def parts(clock: Clock) -> tuple[Environment, Agent]:
        return environment_at(clock), agent_at(clock)

    devices = _devices(recipe, len(seeds))
    setup = Setup(parts, train.unroll, tuple(seeds), devices, train.reset)
    _check_updates(recipe, setup)
    return setup


def environment_of(recipe: Recipe, seeds: int, clock: Clock) -> Environment:
    """The environment alone, as it is at a given time."""
    return _environments(recipe, seeds, rendering=False)(clock)


def _devices(recipe: Recipe, seeds: int) -> int:
    """How many devices the seeds are spread over: each has an equal share."""
    wanted, threads = recipe.train.devices, recipe.train.threads
    if seeds > 1 and isinstance(threads, int) and threads > 1:
        raise recipe.error(
            ("train", "threads"),
            f"`threads: {threads}` with {seeds} seeds could wait for ever",
            "leave it out: several seeds run with one thread",
        )
    there = jax.local_device_count()
    if wanted == "auto" and jax.default_backend() == "cpu":
        # Several seeds vmapped on each of several devices of a processor can wait for
        # each other for ever (PPO with 4 seeds on each of 2 did); on one they cannot.
        return 1
    if wanted == "auto":
        return max(n for n in range(1, min(there, seeds) + 1) if seeds % n == 0)
    if wanted > there:
        raise recipe.error(
            ("train", "devices"), f"`devices: {wanted}`, and there are {there}"
        )
    if seeds % wanted:
        raise recipe.error(
            ("train", "devices"), f"{seeds} seeds cannot be dealt to {wanted} devices"
        )
    return wanted


def _made(
    part: Part,
    clock: Clock,
    recipe: Recipe,
    *parts: Any,
    place: Place = (),
    **more: Any,
) -> Any:
    """What a part's factory makes, with its options as they are at that time."""
    factory = registry.find(part.kind, part.name).factory
    options = schedules.at(part.options, clock, recipe.train.steps)
    try:
        return factory(*parts, **{**options, **more})
    except RlcliError as error:
        raise recipe.placed(place or (part.kind,), error) from error


def _environments(
    recipe: Recipe, seeds: int, rendering: bool
) -> Callable[[Clock], Environment]:
    """The environment, as it is at a given time."""
    part = recipe.environment
    if registry.find(part.kind, part.name).facts.get("adapter"):
        if scheduled := _scheduled(part):
            raise recipe.error(
                ("environment", scheduled[0]),
                f"environment `{part.name}` runs on the host: `{scheduled[0]}` cannot "
                "follow a schedule",
            )
        made = _made(
            part,
            midnight(),
            recipe,
            recipe.num_envs,
            seeds,
            recipe.time_limit,
            recipe.timeout,
            rendering,
        )
        return lambda clock: made

    limit = recipe.time_limit
    assert limit != "default"  # adapters alone have a limit of their own

    def environment(clock: Clock) -> Environment:
        each = {name: jnp.asarray(values) for name, values in recipe.each.items()}
        return vector(
            lambda values: _wrapped(recipe, clock, values),
            recipe.num_envs,
            time_limit=limit,
            each=each,
        )

    return environment


def _wrapped(recipe: Recipe, clock: Clock, values: Mapping[str, Any]) -> Environment:
    """The core, in what the recipe wraps it in."""
    core = _made(recipe.environment, clock, recipe, **values)
    for index, each in enumerate(recipe.wrappers):
        place = ("environment", "wrappers", index)
        core = _made(each, clock, recipe, core, place=place)
    return core


def _scheduled(part: Part) -> list[str]:
    return [
        name
        for name, value in part.options.items()
        if isinstance(value, schedules.Schedule)
    ]


def _agents(recipe: Recipe, environment: Environment) -> Callable[[Clock], Agent]:
    """The agent, as it is at a given time, in that environment."""
    train = recipe.train
    whose = f"environment `{recipe.environment.name}`"
    shown = Spaces(
        environment.observation, environment.action, environment.num_envs, whose
    )
    visit = train.unroll * environment.num_envs
    used: set[str] = set()  # the functions that the updater asks for

    def agent(clock: Clock) -> Agent:
        updater = _made(
            recipe.updater,
            clock,
            recipe,
            shown,
            functools.partial(_network, recipe, clock, shown, used),
            functools.partial(_policy, recipe, clock, shown),
            grouped(
                {
                    group: _made(part, clock, recipe)
                    for group, part in recipe.optimizer.items()
                }
            ),
        )
        tracer = _made(recipe.tracer, clock, recipe)
        _check_window(recipe, tracer.window or 1, environment.num_envs)
        if recipe.replay is None:
            return agents.online(updater, tracer)
        if tracer.window is None:
            raise recipe.error(
                ("tracer",),
                f"tracer `{recipe.tracer.name}` looks at whole episodes, and replay "
                f"`{recipe.replay.name}` hands out single steps",
            )
        window = updater.rows - 1 + tracer.window
        sizes = (window, train.unroll, environment.num_envs)
        # Not before there is a window to be drawn, whatever the recipe says.
        start = max(-(-train.start // visit), -(-window // train.unroll) - 1)
        replay = _made(recipe.replay, clock, recipe, *sizes)
        return agents.remembering(
            updater,
            tracer,
            replay,
            updates=Fraction(train.updates),
            start=start,
        )

    agent(midnight())
    _check_names(recipe, used)
    return agent


def _network(
    recipe: Recipe,
    clock: Clock,
    shown: Spaces,
    used: set[str],
    name: str,
    head_factory: Callable[..., Head],
) -> Network:
    """The recipe's network as function `name` of the observation."""
    used.add(name)
    specs = recipe.network
    spec = specs.get(name) or specs.get(DEFAULT)
    if spec is None and SHARED not in specs:
        raise recipe.error(
            ("network",),
            f"updater `{recipe.updater.name}` needs a network `{name}`",
            f"`network:` has {_listed(specs)}",
        )
    options = schedules.at(spec.head if spec else {}, clock, recipe.train.steps)
    head = _head(recipe, name, head_factory, options)
    found = spec if spec is not None and spec.part is not None else specs[SHARED]
    alone, part = found is spec, found.part
    assert part is not None  # the grammar sees to it
    factory = registry.find("network", part.name).factory
    if _positional(factory):
        if found.memory is not None:
            raise recipe.error(
                ("network", "memory"),
                f"network `{part.name}` is a whole forward pass: it takes no memory",
            )
        settings = schedules.at(part.options, clock, recipe.train.steps)
        forward = functools.partial(factory, **settings)
        return functions.forward_pass(name, forward, head, shown.observation)
    torso = _made(part, clock, recipe)
    if found.memory is not None:
        recall = memory.own if alone else memory.sharing
        carried = _made(found.memory, clock, recipe)
        return recall(name, torso, carried, head, shown.observation)
    make = functions.own if alone else functions.sharing
    return make(name, torso, head, shown.observation)


def _head(
    recipe: Recipe,
    name: str,
    factory: Callable[..., Head],
    options: Mapping[str, Any],
) -> Head:
    known = registry.options(factory)
    for option in options:
        if option not in known:
            raise recipe.error(
                ("network", "head", option),
                f"the head of network `{name}` has no option `{option}`",
                nearest(option, known),
            )
    return factory(**options)


def _policy(recipe: Recipe, clock: Clock, shown: Spaces, **offers: Any) -> Policy:
    """The recipe's policy, acting on what the updater offers."""
    part = recipe.policy
    wanted = _positional(registry.find("policy", part.name).factory)
    missing = [name for name in wanted if name not in offers]
    if missing:
        fitting = [name for name in registry.names("policy") if _fits(name, offers)]
        raise recipe.error(
            ("policy",),
            f"policy `{part.name}` acts on {missing[0]}, and updater "
            f"`{recipe.updater.name}` offers none in {spaces.describe(shown.action)}",
            f"what fits is {_listed(fitting)}",
        )
    policy = _made(part, clock, recipe, *(offers[name] for name in wanted))
    if recipe.train.warmup == "random" and recipe.train.start:
        warming = clock.steps < recipe.train.start
        return warmed_up(policy, random(shown.action), jnp.asarray(warming))
    return policy


def _fits(policy: str, offers: Mapping[str, Any]) -> bool:
    return all(
        name in offers for name in _positional(registry.find("policy", policy).factory)
    )


def _positional(factory: Callable) -> list[str]:
    """The names of the parts that a factory is given."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind in kinds
    ]


def _check_names(recipe: Recipe, used: set[str]) -> None:
    """Refuses networks and optimizers for functions that the updater does not have."""
    for section in ("network", "optimizer"):
        for name in getattr(recipe, section):
            if name not in (DEFAULT, SHARED, *used):
                raise recipe.error(
                    (section, name),
                    f"updater `{recipe.updater.name}` has no function `{name}`",
                    nearest(name, used),
                )


def _check_window(recipe: Recipe, window: int, num_envs: int) -> None:
    """Refuses a tracer that looks further than the whole run is long."""
    unroll = recipe.train.unroll
    steps = recipe.train.steps // (unroll * num_envs) * unroll
    if steps < window:
        least = -(-window // unroll) * unroll * num_envs
        raise recipe.error(
            ("tracer",),
            f"nothing would be learnt: tracer `{recipe.tracer.name}` needs {window:,} "
            f"steps in a row, and the run has {steps:,} of each environment",
            f"raise `train.steps` to at least {least:,}",
        )


def _check_updates(recipe: Recipe, setup: Setup) -> None:
    """Refuses a run that ends before its first update."""
    _, agent = setup.parts(midnight())
    iterations = recipe.train.steps // setup.steps
    if agent.updates(iterations) == 0:
        raise recipe.error(
            ("train", "steps"),
            f"nothing would be learnt: the run ends after {recipe.train.steps:,} "
            "steps, before its first update",
            "`train.start` and `train.updates` say when that comes",
        )


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"
