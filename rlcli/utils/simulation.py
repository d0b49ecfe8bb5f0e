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
from rlcli.environments.vector import keyed, rendering_option, vector
from rlcli.errors import RlcliError
from rlcli.recipe import grammar
from rlcli.recipe.annotations import expected, is_schedulable
from rlcli.recipe.documents import Place
from rlcli.types import (
    Array,
    ArrayTree,
    Environment,
    Key,
    Policy,
    TimeStep,
    Transition,
    keep,
)
from rlcli.xla.random_bits import unrolled

_OWN = "default"  # the time limit that an environment is registered with


def make(
    name: str,
    *,
    num_envs: int | None = None,
    time_limit: int | str | None = _OWN,
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
    found = registry.find("environment", name)
    if found.facts.get("adapter"):
        raise RlcliError(
            f"environment `{name}` cannot be compiled",
            "its own library makes it; `rlcli train` plays it on the host",
        )
    options = _options(found, parameters)
    around = [_wrapper(wrapper) for wrapper in _listed(wrappers)]
    more = rendering_option(found.factory, rendering)

    def core_of(values: Mapping[str, Array]) -> Environment:
        core = found.factory(**more, **{**options, **values})
        for wrapper, its in around:
            core = wrapper.factory(core, **its)
        return core

    if num_envs is None:
        if each or time_limit != _OWN:
            what = "`each`" if each else "`time_limit`"
            raise RlcliError(
                f"{what} is for vectors, and without `num_envs` this is one core",
                f'`rlcli.make("{name}", num_envs=…)`',
            )
        return _telling(_keyed_core(core_of({})), statistics)
    reader, known = _reader(found), registry.options(grammar.Vector)
    number, limit = (
        reader.value(known[key].annotation, value, (key,))
        for key, value in (("num_envs", num_envs), ("time_limit", time_limit))
    )
    values = reader.each(registry.options(found.factory), each, parameters, number)
    env = vector(
        core_of,
        number,
        time_limit=found.facts.get("time_limit") if limit == _OWN else limit,
        each={name: jnp.asarray(numbers) for name, numbers in values.items()},
        rendering=rendering,
    )
    return _telling(keyed(env), statistics)


def _reader(part: registry.Registered) -> grammar.Reader:
    """Reads a part's options as those of a recipe are read."""

    def refuse(place: Place, message: str, hint: str) -> NoReturn:
        del place  # there is no file
        raise RlcliError(message, hint)

    return grammar.Reader(f"{part.kind} `{part.name}`", (), refuse)


def _options(part: registry.Registered, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a part, checked; of what is traced, that it may be."""
    reader, known = _reader(part), registry.options(part.factory)
    traced = {
        key: value
        for key, value in given.items()
        if isinstance(value, Tracer) and key in known
    }
    for key, value in traced.items():
        annotation = known[key].annotation
        if not is_schedulable(annotation):
            message = f"`{key}` of {reader.label} cannot be traced"
            reader.fail((), message, f"give {expected(annotation)}")
        if value.shape:
            message = f"`{key}` of {reader.label} is one number, got {value.shape}"
            reader.fail((), message, "`jax.vmap` over them, or `each` in a vector")
    plain = {
        key: value.tolist() if isinstance(value, jax.Array | np.ndarray) else value
        for key, value in given.items()
        if key not in traced
    }
    rest = {key: value for key, value in known.items() if key not in traced}
    options = reader.options(rest, plain, tuple(traced))
    for key, value in options.items():
        if isinstance(value, schedules.Schedule):
            message = f"`{key}` of {reader.label} is a schedule, and there is no run"
            reader.fail((), message, "give a number, or make another for each")
    return options | {known[key].name: value for key, value in traced.items()}


def _listed(wrappers: Any) -> Sequence[Any]:
    if isinstance(wrappers, str | Mapping):
        raise RlcliError(f"`wrappers` is a list, got {wrappers!r}", "put it in [ ]")
    return wrappers


def _wrapper(given: Any) -> tuple[registry.Registered, dict[str, Any]]:
    """A wrapper and its options, as a recipe says them."""
    options = {"name": given} if isinstance(given, str) else given
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise RlcliError(
            f"expected a wrapper's name, or a mapping with its `name`, got {given!r}",
            "`rlcli list wrappers` shows what there is",
        )
    found = registry.find("wrapper", options["name"])
    return found, _options(found, {k: v for k, v in options.items() if k != "name"})


def _keyed_core(core: Environment) -> Environment:
    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        return core.reset(unrolled(key))

    def step(state: ArrayTree, action: Array, key: Key) -> tuple[ArrayTree, TimeStep]:
        return core.step(state, action, core.draw(unrolled(key)))

    return core._replace(reset=reset, step=step, draw=keep)


class Told(NamedTuple):
    """The state of environments, and what their episodes have come to."""

    environment: ArrayTree
    total: Array  # float32, `[]` or `[B]`: rewards so far
    length: Array  # int32: steps so far


def _telling(env: Environment, statistics: bool) -> Environment:
    """The same, if asked with return and length of episodes in its `info`."""
    if not statistics:
        return env

    def reset(key: Key) -> tuple[Told, ArrayTree]:
        state, obs = env.reset(key)
        shape = (env.num_envs,) if env.num_envs else ()
        return Told(state, jnp.zeros(shape), jnp.zeros(shape, jnp.int32)), obs

    def step(state: Told, action: Array, *rest: Any) -> tuple[Told, TimeStep]:
        inner, timestep = env.step(state.environment, action, *rest)
        total, length = state.total + timestep.reward, state.length + 1
        told = {"episode_return": total, "episode_length": length}
        after = Told(
            inner,
            jnp.where(timestep.last, 0.0, total),
            jnp.where(timestep.last, 0, length),
        )
        return after, timestep._replace(info={**timestep.info, **told})

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
    decide, memory = _deciding(policy, env.num_envs)
    fresh = jnp.ones(batch, bool)
    going = jnp.ones(batch, bool)

    def step(carry: tuple, key: Key) -> tuple[tuple, tuple[Transition, Array]]:
        state, obs, memory, first, going = carry
        decide_key, step_key = jax.random.split(key)
        action, memory = decide(acting, obs, memory, first, decide_key)
        state, answer = env.step(state, action, step_key)
        row = Transition(
            obs=obs,
            action=action,
            reward=answer.reward,
            discount=answer.discount,
            next_obs=answer.next_obs,
            first=first,
            last=answer.last,
            extras={},
        )
        counted = jnp.where(going, answer.reward, 0.0)
        begins = answer.last if env.num_envs else jnp.zeros(batch, bool)
        carry = state, answer.obs, memory, begins, going & ~answer.last
        return carry, (row, counted)

    carry = state, obs, memory, fresh, going
    _, (rows, counted) = jax.lax.scan(step, carry, jax.random.split(loop_key, steps))
    return Rollout(rows, jnp.sum(counted, axis=0))


def _deciding(policy: Any, num_envs: int) -> tuple[Callable, ArrayTree]:
    """`(acting, obs, memory, first, key) -> action, memory`, and the first memory."""
    if not isinstance(policy, Policy):
        return lambda acting, obs, memory, first, key: (
            policy(acting, obs, key),
            memory,
        ), ()
    batch = num_envs or 1

    def decide(
        acting: ArrayTree, obs: Array, memory: ArrayTree, first: Array, key: Key
    ) -> tuple[Array, ArrayTree]:
        if not num_envs:  # a core's observation, as a batch of one
            obs, first = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        noise = policy.draw(key, batch)
        decision, memory = policy.explore(acting, obs, memory, first, noise)
        action = decision.action
        if not num_envs:
            action = jax.tree.map(lambda leaf: leaf[0], action)
        return action, memory

    return decide, policy.initial(batch)
