"""The setup of a recipe: its environment and its agent, as they are at any time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp

from rlcli import action_masks, plugins, registry, schedules, spaces
from rlcli.assembly import out_of_memory
from rlcli.assembly.checks import (
    check_advantage,
    check_answers,
    check_capacity,
    check_episodes,
    check_gradient_steps,
    check_names,
    check_priority,
    check_rows,
    check_updates,
    check_window,
)
from rlcli.assembly.networks import network
from rlcli.assembly.parts import listed, made, positional
from rlcli.assembly.preprocessing import of_environment
from rlcli.environments.vector import rendering_option, vector
from rlcli.errors import RlcliError
from rlcli.loop import agents
from rlcli.loop.progress import Setup, midnight
from rlcli.policies.sampled import random
from rlcli.policies.warmup import warmed_up
from rlcli.preprocessing.frame_stack import showing
from rlcli.preprocessing.normalization import Normalizer, normalizer
from rlcli.recipe import DEFAULT, SHARED, Part, Recipe
from rlcli.types import Agent, Clock, Environment, Policy, Updater
from rlcli.updaters import Spaces
from rlcli.updaters.optimizers import grouped
from rlcli.xla import threads


def build(
    recipe: Recipe, seeds: Sequence[int] | None = None, *, rendering: bool = False
) -> Setup:
    """Environment and agent of a recipe, for these seeds (the recipe's, if None).

    Every misfit of two parts is an `RlcliError` that names both.
    """
    try:
        return _build(recipe, seeds, rendering)
    except MemoryError as error:
        raise recipe.error(
            (),
            f"the recipe needs more memory than there is: {plugins.reason(error)}",
            "lower `environment.num_envs`, `train.seeds` or the sizes of parts",
        ) from error


def _build(recipe: Recipe, seeds: Sequence[int] | None, rendering: bool) -> Setup:
    """The setup, as `build` describes it."""
    threads.settle()
    train = recipe.train
    if seeds is None:
        seeds = range(train.seed, train.seed + train.seeds)
    with out_of_memory.limit_building(recipe):
        environment_at = _environments(recipe, len(seeds), rendering)
        agent_at = _agents(recipe, environment_at(midnight()))

    def parts(clock: Clock) -> tuple[Environment, Agent]:
        return environment_at(clock), agent_at(clock)

    devices = _devices(recipe, len(seeds))
    setup = Setup(parts, train.unroll, tuple(seeds), devices, train.reset)
    check_updates(recipe, setup)
    return setup


def environment_of(
    recipe: Recipe, seeds: int, clock: Clock, *, rendering: bool = False
) -> Environment:
    """The environment alone, as it is at a given time."""
    with out_of_memory.limit_building(recipe):
        return _environments(recipe, seeds, rendering)(clock)


def check_environment(recipe: Recipe) -> None:
    """Refuses a compiled environment that does not return what its spaces declare."""
    if registry.find("environment", recipe.environment.name).facts.get("adapter"):
        return  # on the host: its answers are checked when they come
    values = {name: jnp.asarray(each)[0] for name, each in recipe.each.items()}
    check_answers(recipe, _wrapped(recipe, midnight(), values))


def _devices(recipe: Recipe, seeds: int) -> int:
    """How many devices the seeds are spread over: each has an equal share."""
    wanted, pool = recipe.train.devices, recipe.train.threads
    if seeds > 1 and isinstance(pool, int) and pool > 1:
        raise recipe.error(
            ("train", "threads"),
            f"`threads: {pool}` with {seeds} seeds could wait for ever",
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


def _environments(
    recipe: Recipe, seeds: int, rendering: bool
) -> Callable[[Clock], Environment]:
    """The environment, as it is at a given time."""
    part, remembered = recipe.environment, of_environment(recipe)
    if registry.find(part.kind, part.name).facts.get("adapter"):
        if scheduled := _scheduled(part):
            raise recipe.error(
                ("environment", scheduled[0]),
                f"environment `{part.name}` runs on the host: `{scheduled[0]}` cannot "
                "follow a schedule",
            )
        there = made(
            part,
            midnight(),
            recipe,
            recipe.num_envs,
            seeds,
            recipe.time_limit,
            recipe.timeout,
            rendering,
        )
        there = showing(there, remembered)
        return lambda clock: there

    limit = recipe.time_limit
    assert limit != "default"  # adapters alone have a limit of their own

    def environment(clock: Clock) -> Environment:
        each = {name: jnp.asarray(values) for name, values in recipe.each.items()}
        many = vector(
            lambda values: _wrapped(recipe, clock, values, rendering),
            recipe.num_envs,
            time_limit=limit,
            each=each,
            rendering=rendering,
        )
        return showing(many, remembered)

    return environment


def _wrapped(
    recipe: Recipe, clock: Clock, values: Mapping[str, Any], rendering: bool = False
) -> Environment:
    """The core, in what the recipe wraps it in."""
    part = recipe.environment
    more = rendering_option(registry.find(part.kind, part.name).factory, rendering)
    core = made(part, clock, recipe, **more, **values)
    for index, each in enumerate(recipe.wrappers):
        place = ("environment", "wrappers", index)
        core = made(each, clock, recipe, core, place=place)
    return core


def _rules(recipe: Recipe, clock: Clock) -> Environment | None:
    """One environment alone, if it is pure and what it shows is what the agent sees."""
    part, scaled = recipe.environment, recipe.normalize
    if registry.find(part.kind, part.name).facts.get("adapter"):
        return None
    if recipe.each or scaled.observation or scaled.reward or of_environment(recipe):
        return None
    return _wrapped(recipe, clock, {})


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
    try:
        action_masks.check(shown.observation, shown.action)
    except RlcliError as error:
        raise recipe.placed(("environment",), error) from error
    check_gradient_steps(recipe, environment.num_envs)
    visit = train.unroll * environment.num_envs
    used: set[str] = set()  # the functions that the updater asks for
    span = made(recipe.tracer, midnight(), recipe).window

    def updater_at(clock: Clock) -> Updater:
        return made(
            recipe.updater,
            clock,
            recipe,
            shown._replace(
                rules=functools.partial(_rules, recipe, clock),
                gamma=_gamma(recipe, clock),
                span=span,
            ),
            functools.partial(network, recipe, clock, shown, used),
            functools.partial(_policy, recipe, clock, shown),
            grouped(
                {
                    group: made(part, clock, recipe)
                    for group, part in recipe.optimizer.items()
                }
            ),
        )

    def agent(clock: Clock) -> Agent:
        updater = updater_at(clock)
        normalize = _normalizer(recipe, clock, shown)
        updater = normalize.updater(updater)
        tracer = made(recipe.tracer, clock, recipe)
        check_rows(recipe, tracer)
        check_window(recipe, tracer.window or 1, environment.num_envs)
        if recipe.replay is None:
            check_episodes(recipe, tracer, None)
            return normalize.agent(agents.online(updater, tracer))
        window = updater.rows - 1 + (tracer.window or 1)
        sizes = (window, train.unroll, environment.num_envs)
        replay = made(recipe.replay, clock, recipe, *sizes)
        check_capacity(recipe, replay, visit)
        check_episodes(recipe, tracer, replay)
        check_priority(recipe, replay)
        check_advantage(recipe, tracer, replay)
        # Not before there is a window to be drawn, whatever the recipe says.
        least = -(-max(window, replay.window) // train.unroll) - 1
        start = max(-(-train.start // visit), least)
        updates = Fraction(train.updates)
        return normalize.agent(
            agents.remembering(updater, tracer, replay, updates=updates, start=start)
        )

    agent(midnight())
    strange = set(recipe.optimizer) - used - {DEFAULT, SHARED}
    check_names(recipe, used, _groups(updater_at(midnight())) if strange else set())
    return agent


def _groups(updater: Updater) -> set[str]:
    """The groups of an updater's parameters, if it keeps them as a `Learner` does."""
    state = jax.eval_shape(updater.init, jax.eval_shape(lambda: jax.random.key(0)))
    return set(getattr(state, "params", {}))


def _normalizer(recipe: Recipe, clock: Clock, shown: Spaces) -> Normalizer:
    """What brings observations and rewards to scale, if the recipe wants it."""
    asked = recipe.normalize
    if not (asked.observation or asked.reward):
        return Normalizer(lambda updater: updater, lambda agent: agent)
    try:
        return normalizer(
            shown.observation,
            shown.num_envs,
            observation=asked.observation,
            reward=asked.reward,
            gamma=_gamma(recipe, clock),
        )
    except RlcliError as error:
        raise recipe.placed(("normalize",), error) from error


def _gamma(recipe: Recipe, clock: Clock) -> Any:
    """What the tracer discounts with."""
    options = schedules.at(recipe.tracer.options, clock, recipe.train.steps)
    return options.get("gamma", 1.0)


def _policy(recipe: Recipe, clock: Clock, shown: Spaces, **offers: Any) -> Policy:
    """The recipe's policy, acting on what the updater offers."""
    part = recipe.policy
    gamma = _gamma(recipe, clock)
    offers = {**offers, "observation": shown.observation, "gamma": gamma}
    wanted = positional(registry.find("policy", part.name).factory)
    missing = [name for name in wanted if name not in offers]
    if missing:
        fitting = [name for name in registry.names("policy") if _fits(name, offers)]
        raise recipe.error(
            ("policy",),
            f"policy `{part.name}` acts on {missing[0]}, and updater "
            f"`{recipe.updater.name}` offers none in {spaces.describe(shown.action)}",
            f"what fits is {listed(fitting)}",
        )
    policy = made(part, clock, recipe, *(offers[name] for name in wanted))
    if recipe.train.warmup == "random" and recipe.train.start:
        warming = clock.steps < recipe.train.start
        return warmed_up(
            policy, random(shown.action, shown.observation), jnp.asarray(warming)
        )
    return policy


def _fits(policy: str, offers: Mapping[str, Any]) -> bool:
    try:
        wanted = positional(registry.find("policy", policy).factory)
    except RlcliError:  # a plug-in that is broken
        return False
    return all(name in offers for name in wanted)
