"""Setup: builds the agent of a recipe, and combines it with the environment."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli import registry
from rlcli.assembly import numbers, out_of_memory, requirements, shares
from rlcli.assembly.build_part import build_part, explain_user_errors, format_names
from rlcli.assembly.data import read_data
from rlcli.assembly.make_environment import build_simulator, environment_factory
from rlcli.assembly.networks import build_network, frozen_at
from rlcli.distributions import action_masks
from rlcli.environments.idle import idle
from rlcli.errors import RlcliError, quote
from rlcli.loop import agents
from rlcli.loop.progress import Setup
from rlcli.networks.freezing import torso_paths
from rlcli.policies.sampled import random, warmup_policy
from rlcli.preprocessing.normalization import normalizer
from rlcli.recipe import Recipe
from rlcli.registry import plugins
from rlcli.types import (
    START,
    Agent,
    Array,
    ArrayTree,
    Clock,
    Environment,
    Inputs,
    Key,
    Network,
    Policy,
    Replay,
    Report,
    Tracer,
    Transition,
    Updater,
)
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.intrinsic_rewards import add_intrinsic_reward
from rlcli.updaters.optimizers import partition_by_group
from rlcli.xla import backend, switches, taps, threads


def build(
    recipe: Recipe, seeds: Sequence[int] | None = None, *, rendering: bool = False
) -> Setup:
    """Builds environment and agent of a recipe for `seeds` (by default the recipe's).

    Raises an `RlcliError` if two parts are incompatible; the message names both.
    """
    try:
        with explain_user_errors(recipe):
            return _build(recipe, seeds, rendering)
    except MemoryError as error:
        raise recipe.error(
            (),
            f"the recipe needs more memory than available: {plugins.reason(error)}",
            "lower `environment.num_envs`, `train.seeds` or the sizes of parts",
        ) from error


def _build(recipe: Recipe, seeds: Sequence[int] | None, rendering: bool) -> Setup:
    """Implements `build`."""
    switches.require_defaults()
    threads.disable_async_dispatch()
    backend.multiply_in_float32()
    train = recipe.train
    if seeds is None:
        seeds = range(train.seed, train.seed + train.seeds)
    share = shares.share_of_device(recipe)
    with out_of_memory.limit_building(recipe):
        environment_at = environment_factory(share, len(seeds), rendering)
        environment = environment_at(START)
        parts_at = _agent_parts_factory(share, environment_at)
        parts = parts_at(START)
    is_idle = parts.replay is not None and parts.replay.traits.is_offline
    if is_idle:
        environment = idle(environment)
    num_envs = environment.num_envs * train.data_parallel
    replay = parts.replay and parts.replay.traits
    requirements.check_parts(
        share, num_envs, parts.tracer, parts.updater.traits, replay
    )
    requirements.check_frame_stack(recipe, environment, replay)
    updater = parts.wrap_updater(parts.updater)
    shares.check_data_parallel(recipe, updater, parts.replay)

    def build_at(inputs: Inputs) -> tuple[Environment, Agent]:
        agent = _combine_parts(recipe, parts_at(inputs), num_envs)
        return environment if is_idle else environment_at(inputs), agent

    def scheduled_at(inputs: Inputs) -> Mapping[str, Any]:
        now = numbers.with_numbers(recipe, inputs.numbers)
        parts = {**now.agent_parts, "environment": now.environment}
        del parts["policy"]
        for index, wrapper in enumerate(now.wrappers):
            parts[f"environment.wrappers.{index}"] = wrapper
        return numbers.scheduled_values(parts, inputs.clock, now)

    setup = Setup(
        environment=environment,
        agent=_combine_parts(recipe, parts, num_envs),
        at=build_at,
        unroll=train.unroll,
        seeds=tuple(seeds),
        devices=_device_count(recipe, len(seeds), environment.pure),
        resets_unroll=train.reset,
        numbers=numbers.recipe_numbers(recipe),
        data=read_data(recipe, environment, parts.replay),
        scheduled=scheduled_at,
        data_parallel=train.data_parallel,
        networks=parts.networks,
        conditions=numbers.success_conditions(recipe),
    )
    requirements.check_updates(recipe, setup, parts.updater.traits)
    for index, place in enumerate(train.adjustable):
        if place not in setup.numbers:
            raise recipe.error(
                ("train", "adjustable", index),
                f"`train.adjustable`: {quote(place)} is no number that may follow a "
                "schedule",
                "list places of options, such as `optimizer.learning_rate`; numbers of "
                "an environment on the host need no entry",
            )
    return setup


def _device_count(recipe: Recipe, seeds: int, is_pure: bool) -> int:
    """The number of devices over which the seeds are divided.

    With `train.data_parallel`, it is the number of device groups instead.
    """
    requested, num_threads = recipe.train.devices, recipe.train.threads
    group = recipe.train.data_parallel
    if seeds > 1 and isinstance(num_threads, int) and num_threads > 1:
        raise recipe.error(
            ("train", "threads"),
            f"`threads: {num_threads}` with {seeds} seeds could deadlock",
            "remove `threads`: several seeds use one thread",
        )
    if not is_pure:
        return 1  # the host loop uses a single device
    available = jax.device_count()
    is_pool = jax.default_backend() == "cpu" and not threads.is_single_threaded()
    if requested == "auto" and is_pool:
        return 1  # threads that several devices share can deadlock
    if requested == "auto":
        return threads.fewest_devices(seeds, max(1, available // group))
    if requested > available:
        raise recipe.error(
            ("train", "devices"),
            f"`devices: {requested}`, but JAX finds only {available}",
            "lower `devices`, or use `devices: auto`",
        )
    if requested % group:
        raise recipe.error(
            ("train", "devices"),
            f"`devices: {requested}` is not a multiple of `data_parallel: {group}`",
            "use `devices: auto`",
        )
    if requested > seeds * group:
        raise recipe.error(
            ("train", "devices"),
            f"`devices: {requested}`, but `seeds` is {seeds}",
            "lower `devices`, or use `devices: auto`",
        )
    return requested // group


class _AgentParts(NamedTuple):
    """The parts of an agent, built for given inputs."""

    tracer: Tracer
    updater: Updater  # without intrinsic reward and normalization
    wrap_updater: Callable[[Updater], Updater]  # adds them
    replay: Replay | None
    networks: Mapping[str, Network]  # of the functions that the updater requests


def _agent_parts_factory(
    recipe: Recipe, environment_at: Callable[[Inputs], Environment]
) -> Callable[[Inputs], _AgentParts]:
    """Returns a function that builds the parts of the agent for given inputs."""
    environment = environment_at(START)  # its spaces do not depend on schedules
    owner = f"environment `{recipe.environment.name}`"
    env_spaces = Spaces(
        environment.observation,
        environment.action,
        environment.num_envs,
        owner,
        external=environment.own,
    )
    try:
        action_masks.check_mask(env_spaces.observation, env_spaces.action)
    except RlcliError as error:
        raise recipe.locate_error(("environment",), error) from error

    def build_replay(recipe: Recipe, inputs: Inputs, window: int) -> Replay | None:
        if recipe.replay is None:
            return None
        limit = recipe.time_limit
        offers = {
            "window": window,
            "unroll": recipe.train.unroll,
            "num_envs": environment.num_envs,
            "time_limit": limit if isinstance(limit, int) else None,
        }
        if registry.find("replay", recipe.replay.name).takes("goal_reward"):
            offers["goal_reward"] = requirements.check_goals(
                recipe, environment_at(inputs)
            )
        try:
            return build_part(recipe.replay, inputs.clock, recipe, offers)
        except RlcliError as error:
            raise shares.explain_share(recipe, error) from error

    def build_updater(
        now: Recipe, clock: Clock, tracer: Tracer, networks: dict[str, Network]
    ) -> tuple[Updater, Callable[[Updater], Updater]]:
        """The updater, and the function that adds intrinsic reward and normalization.

        The networks that they request are added to `networks`, by name.
        """
        make_network = functools.partial(
            build_network, now, clock, env_spaces, networks
        )
        optimizer = partition_by_group(
            {
                group: build_part(part, clock, now, place=now.optimizer_place(group))
                for group, part in now.optimizer.items()
            },
            frozen_at(now, clock),
            lambda: torso_paths(networks.values()),
        )
        make_policy = functools.partial(_build_policy, now, clock, env_spaces, tracer)
        parts = Parts(env_spaces, make_network, make_policy, optimizer)
        offers = {"parts": parts, "tracer": tracer}
        if registry.find("updater", now.updater.name).takes("simulator"):
            offers["simulator"] = build_simulator(now, clock)
        updater = _tap_batch(build_part(now.updater, clock, now, offers))
        normalize = _build_normalizer(now, env_spaces, tracer)
        if now.intrinsic_reward is None:
            return updater, normalize
        reward = build_part(now.intrinsic_reward, clock, now, {"parts": parts})
        return updater, lambda updater: normalize(add_intrinsic_reward(updater, reward))

    def build_parts(inputs: Inputs) -> _AgentParts:
        now, clock = numbers.with_numbers(recipe, inputs.numbers), inputs.clock
        tracer = build_part(now.tracer, clock, now)
        networks: dict[str, Network] = {}  # one per call, which may be traced
        updater, wrap_updater = build_updater(now, clock, tracer, networks)
        replay = build_replay(now, inputs, _row_window(tracer, updater))
        return _AgentParts(tracer, updater, wrap_updater, replay, networks)

    parts = build_parts(START)
    requirements.check_networks(recipe, parts.networks, parts.updater)
    return build_parts


def _tap_batch(updater: Updater) -> Updater:
    """The updater, which offers what it gets to `xla.taps`."""

    def update(
        state: ArrayTree, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[ArrayTree, Report]:
        taps.tap(taps.BATCH, lambda: (batch, weight))
        return updater.update(state, batch, weight, clock, key)

    return updater._replace(update=update)


def _combine_parts(recipe: Recipe, parts: _AgentParts, num_envs: int) -> Agent:
    """Combines the parts of an agent, with its number of updates."""
    train, (tracer, updater, wrap_updater, replay, _) = recipe.train, parts
    wrapped = wrap_updater(updater)
    if replay is None:
        return agents.online_agent(wrapped, tracer)
    # The replay has to contain a whole window before the first update, even if
    # `train.start` is smaller. An offline replay contains its data set from the start.
    window = max(_row_window(tracer, updater), replay.traits.window)
    window = 1 if replay.traits.is_offline else window
    min_iterations = -(-window // train.unroll) - 1
    start = max(-(-train.start // (train.unroll * num_envs)), min_iterations)
    # A number once `init` is recorded, before the first step of a run.
    filled = 0 if recipe.init is None else int(recipe.init.replay)
    return agents.replay_agent(
        wrapped,
        tracer,
        replay,
        updates=Fraction(train.updates),
        start=start,
        filled=filled // (train.unroll * num_envs),
    )


def _row_window(tracer: Tracer, updater: Updater) -> int:
    """The number of consecutive steps that the rows of one update require."""
    return updater.traits.sequence_length - 1 + (tracer.window or 1)


def _build_normalizer(
    recipe: Recipe, env_spaces: Spaces, tracer: Tracer
) -> Callable[[Updater], Updater]:
    """The normalizer of observations and rewards; the identity if not requested."""
    normalization = recipe.normalize
    if not (normalization.observation or normalization.reward):
        return lambda updater: updater
    try:
        return normalizer(
            env_spaces.observation,
            env_spaces.num_envs,
            observation=normalization.observation,
            reward=normalization.reward,
            gamma=tracer.gamma,
            observation_clip=normalization.observation_clip,
            reward_clip=normalization.reward_clip,
        )
    except RlcliError as error:
        raise recipe.locate_error(("normalize",), error) from error


def _build_policy(
    recipe: Recipe, clock: Clock, env_spaces: Spaces, tracer: Tracer, **offers: Any
) -> Policy:
    """The recipe's policy, built from the functions that the updater provides."""
    part = recipe.policy
    offers |= {"observation": env_spaces.observation, "gamma": tracer.gamma}
    missing = _missing_offers(part.name, offers)
    if missing:
        fitting = [
            name
            for name in registry.names("policy")
            if not _missing_offers(name, offers)
        ]
        raise recipe.error(
            ("policy",),
            f"policy `{part.name}` requires `{missing[0]}`, which updater "
            f"`{recipe.updater.name}` does not provide for the action space "
            f"{env_spaces.describe_action()}",
            f"choose the policy from {format_names(fitting)}",
        )
    policy = build_part(part, clock, recipe, offers)
    if recipe.train.warmup == "random" and recipe.train.start:
        is_warmup = clock.steps < recipe.train.start
        return warmup_policy(
            policy,
            random(env_spaces.action, env_spaces.observation),
            jnp.asarray(is_warmup),
        )
    return policy


def _missing_offers(policy: str, offers: Mapping[str, Any]) -> list[str]:
    """The parameters of a policy that nothing is offered for."""
    try:
        required = registry.positional_parameters(
            registry.find("policy", policy).factory
        )
    except RlcliError:  # a plug-in that cannot be loaded
        return [policy]
    return [
        name
        for name, default in required.items()
        if name not in offers and default is inspect.Parameter.empty
    ]


def build_together(
    recipes: Sequence[Recipe], seeds: Sequence[int]
) -> tuple[Setup, list[Setup]]:
    """Builds recipes that differ in numbers only, with the same seeds for each.

    Returns the setup of their common program, whose seeds are those of the first
    recipe, then those of the second, and so on; and the setup of each recipe.
    """
    setups = [build(recipe, (*seeds,) * len(recipes)) for recipe in recipes]
    if len(recipes) == 1:
        return setups[0], setups
    common = setups[0]._replace(numbers=numbers.numbers_of_each(recipes, len(seeds)))
    return common, [setup._replace(seeds=tuple(seeds)) for setup in setups]
