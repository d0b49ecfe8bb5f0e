"""Simulation: environments from Python, without a recipe and without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from rlcli import registry, schedules
from rlcli.environments.vector import keyed_environment, rendering_option, vector
from rlcli.errors import RlcliError
from rlcli.recipe import grammar
from rlcli.recipe.annotations import describe_annotation, is_schedulable
from rlcli.recipe.documents import Place
from rlcli.types import (
    Array,
    ArrayTree,
    Environment,
    Key,
    Policy,
    TimeStep,
    Transition,
    key_as_noise,
)
from rlcli.xla.random_bits import unroll_key

_REGISTERED_LIMIT = "default"  # the time limit that an environment is registered with


def make(
    name: str,
    *,
    num_envs: int | None = None,
    time_limit: int | str | None = _REGISTERED_LIMIT,
    wrappers: Sequence[str | Mapping[str, Any]] = (),
    each: Mapping[str, Sequence[float]] = MappingProxyType({}),
    statistics: bool = False,
    rendering: bool = False,
    **parameters: Any,
) -> Environment:
    """An environment of ours, whose `step` takes a key.

        env = rlcli.make("Pendulum-v1", g=9.8)
        state, obs = env.reset(key)
        state, timestep = env.step(state, action, key)

    This is the pure core: no batch axis, no time limit, no auto-reset. With `num_envs`
    it is the vector of so many, `[num_envs, ...]`, whose episodes are truncated at
    the time limit and begin again by themselves.

    Args:
        name: what `rlcli list environments` shows; not an adapter's, such as
            `gymnasium/…`, which no program can be compiled with.
        num_envs: how many, side by side; None for the core.
        time_limit: steps after which an episode of the vector is truncated, None for
            never; by default what the environment is registered with.
        wrappers: what the core is wrapped in, from the inside out: names, or mappings
            with `name` and options, as in a recipe.
        each: of a vector's parameters several values: environment i takes value i mod
            their number.
        statistics: whether `timestep.info` has `episode_return`, float32, and
            `episode_length`, int32: of the episode so far, at its end of all of it.
        rendering: whether states store what only pictures show, such as the cards of
            Blackjack, and a vector the final states for `render_final(state, index)`.
        parameters: the factory's own. Those that follow a schedule in recipes may be
            traced: `jax.vmap` over them gives a population. `rlcli show environment
            NAME` lists them.

    Raises:
        RlcliError: for what a recipe could not say either.
    """
    part = registry.find("environment", name)
    if part.facts.get("adapter"):
        raise RlcliError(
            f"environment `{name}` cannot be compiled",
            "its own library makes it; `rlcli train` plays it on the host",
        )
    options = _check_options(part, parameters)
    wrapper_parts = [_read_wrapper(wrapper) for wrapper in _check_list(wrappers)]
    more = rendering_option(part.factory, rendering)

    def core_of(values: Mapping[str, Array]) -> Environment:
        core = part.factory(**more, **{**options, **values})
        for wrapper, wrapper_options in wrapper_parts:
            core = wrapper.factory(core, **wrapper_options)
        return core

    if num_envs is None:
        if each or time_limit != _REGISTERED_LIMIT:
            what = "`each`" if each else "`time_limit`"
            raise RlcliError(
                f"{what} is for vectors, and without `num_envs` this is one core",
                f'`rlcli.make("{name}", num_envs=…)`',
            )
        return _record_statistics(_keyed_core(core_of({})), statistics)
    reader, vector_parameters = _option_reader(part), registry.options(grammar.Vector)
    number, limit = (
        reader.value(vector_parameters[key].annotation, value, (key,))
        for key, value in (("num_envs", num_envs), ("time_limit", time_limit))
    )
    values = reader.read_each(registry.options(part.factory), each, parameters, number)
    env = vector(
        core_of,
        number,
        time_limit=part.facts.get("time_limit")
        if limit == _REGISTERED_LIMIT
        else limit,
        each={name: jnp.asarray(numbers) for name, numbers in values.items()},
        rendering=rendering,
    )
    return _record_statistics(keyed_environment(env), statistics)


def _option_reader(part: registry.RegisteredPart) -> grammar.Reader:
    """Reads a part's options as those of a recipe are read."""

    def refuse(place: Place, message: str, hint: str) -> NoReturn:
        del place  # there is no file
        raise RlcliError(message, hint)

    return grammar.Reader(f"{part.kind} `{part.name}`", (), refuse)


def _check_options(
    part: registry.RegisteredPart, options_given: Mapping[str, Any]
) -> dict[str, Any]:
    """All options of a part, checked; of what is traced, that it may be."""
    reader, parameters = _option_reader(part), registry.options(part.factory)
    traced_options = {
        key: value
        for key, value in options_given.items()
        if isinstance(value, Tracer) and key in parameters
    }
    for key, value in traced_options.items():
        annotation = parameters[key].annotation
        if not is_schedulable(annotation):
            message = f"`{key}` of {reader.label} cannot be traced"
            reader.fail((), message, f"give {describe_annotation(annotation)}")
        if value.shape:
            message = f"`{key}` of {reader.label} is one number, got {value.shape}"
            reader.fail((), message, "`jax.vmap` over them, or `each` in a vector")
    plain = {
        key: value.tolist() if isinstance(value, jax.Array | np.ndarray) else value
        for key, value in options_given.items()
        if key not in traced_options
    }
    rest = {
        key: value for key, value in parameters.items() if key not in traced_options
    }
    options = reader.options(rest, plain, tuple(traced_options))
    for key, value in options.items():
        if isinstance(value, schedules.Schedule):
            message = f"`{key}` of {reader.label} is a schedule, and there is no run"
            reader.fail((), message, "give a number, or make another for each")
    return options | {
        parameters[key].name: value for key, value in traced_options.items()
    }


def _check_list(wrappers: Any) -> Sequence[Any]:
    if isinstance(wrappers, str | Mapping):
        raise RlcliError(f"`wrappers` is a list, got {wrappers!r}", "put it in [ ]")
    return wrappers


def _read_wrapper(wrapper: Any) -> tuple[registry.RegisteredPart, dict[str, Any]]:
    """A wrapper and its options, as a recipe says them."""
    options = {"name": wrapper} if isinstance(wrapper, str) else wrapper
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise RlcliError(
            f"expected a wrapper's name, or a mapping with its `name`, got {wrapper!r}",
            "`rlcli list wrappers` shows what there is",
        )
    part = registry.find("wrapper", options["name"])
    return part, _check_options(part, {k: v for k, v in options.items() if k != "name"})


def _keyed_core(core: Environment) -> Environment:
    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        return core.reset(unroll_key(key))

    def step(state: ArrayTree, action: Array, key: Key) -> tuple[ArrayTree, TimeStep]:
        return core.step(state, action, core.draw(unroll_key(key)))

    return core._replace(reset=reset, step=step, draw=key_as_noise)


class EpisodeStatisticsState(NamedTuple):
    """The state of environments, and what their episodes have come to."""

    environment: ArrayTree
    total: Array  # float32, `[]` or `[B]`: rewards so far
    length: Array  # int32: steps so far


def _record_statistics(env: Environment, statistics: bool) -> Environment:
    """The same, if asked with return and length of episodes in its `info`."""
    if not statistics:
        return env

    def reset(key: Key) -> tuple[EpisodeStatisticsState, ArrayTree]:
        state, obs = env.reset(key)
        shape = (env.num_envs,) if env.num_envs else ()
        return EpisodeStatisticsState(
            state, jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
        ), obs

    def step(
        state: EpisodeStatisticsState, action: Array, *rest: Any
    ) -> tuple[EpisodeStatisticsState, TimeStep]:
        inner, timestep = env.step(state.environment, action, *rest)
        total, length = state.total + timestep.reward, state.length + 1
        episode_info = {"episode_return": total, "episode_length": length}
        after = EpisodeStatisticsState(
            inner,
            jnp.where(timestep.last, 0.0, total),
            jnp.where(timestep.last, 0, length),
        )
        return after, timestep._replace(info={**timestep.info, **episode_info})

    return env._replace(
        reset=reset,
        step=step,
        render=lambda state, *index: env.render(state.environment, *index),
        render_final=lambda state, *index: env.render_final(state.environment, *index),
    )


class Rollout(NamedTuple):
    """What came of playing for some steps."""

    steps: Transition  # `[T, ...]`; in the vector `[T, B, ...]`
    total: Array  # the return of the first episode, as far as it went: `[]` or `[B]`


def rollout(
    env: Environment,
    policy: Policy | Callable[[ArrayTree, Array, Key], Array],
    acting: ArrayTree,
    key: Key,
    steps: int,
) -> Rollout:
    """Plays for `steps` steps, in one compiled loop; `jax.vmap` over keys is a batch.

    A core does not begin again: what comes after its episode's end is played on from
    there, and is not part of the return.

    Args:
        env: of `rlcli.make`, the core or the vector.
        policy: a function `(acting, obs, key) -> action`, or a policy of rlcli's,
            which explores.
        acting: what the policy acts with, its parameters.
        key: of all that is random.
        steps: how many.
    """
    reset_key, loop_key = jax.random.split(key)
    state, obs = env.reset(reset_key)
    batch = (env.num_envs,) if env.num_envs else ()
    decide, policy_state = _make_decide(policy, env.num_envs)
    fresh = jnp.ones(batch, bool)
    is_first_episode = jnp.ones(batch, bool)

    def step(carry: tuple, key: Key) -> tuple[tuple, tuple[Transition, Array]]:
        state, obs, policy_state, first, is_first_episode = carry
        decide_key, step_key = jax.random.split(key)
        action, policy_state = decide(acting, obs, policy_state, first, decide_key)
        state, timestep = env.step(state, action, step_key)
        row = Transition(
            obs=obs,
            action=action,
            reward=timestep.reward,
            discount=timestep.discount,
            next_obs=timestep.next_obs,
            first=first,
            last=timestep.last,
            extras={},
        )
        episode_reward = jnp.where(is_first_episode, timestep.reward, 0.0)
        begins = timestep.last if env.num_envs else jnp.zeros(batch, bool)
        carry = (
            state,
            timestep.obs,
            policy_state,
            begins,
            is_first_episode & ~timestep.last,
        )
        return carry, (row, episode_reward)

    carry = state, obs, policy_state, fresh, is_first_episode
    _, (rows, rewards) = jax.lax.scan(step, carry, jax.random.split(loop_key, steps))
    return Rollout(rows, jnp.sum(rewards, axis=0))


def _make_decide(policy: Any, num_envs: int) -> tuple[Callable, ArrayTree]:
    """`(acting, obs, policy_state, first, key) -> action, policy_state`, and the first
    memory.
    """
    if not isinstance(policy, Policy):
        return lambda acting, obs, policy_state, first, key: (
            policy(acting, obs, key),
            policy_state,
        ), ()
    batch = num_envs or 1

    def decide(
        acting: ArrayTree, obs: Array, policy_state: ArrayTree, first: Array, key: Key
    ) -> tuple[Array, ArrayTree]:
        if not num_envs:  # a core's observation, as a batch of one
            obs, first = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        noise = policy.draw(key, batch)
        decision, policy_state = policy.explore(acting, obs, policy_state, first, noise)
        action = decision.action
        if not num_envs:
            action = jax.tree.map(lambda leaf: leaf[0], action)
        return action, policy_state

    return decide, policy.initial(batch)
