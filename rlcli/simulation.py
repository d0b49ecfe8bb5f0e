"""Simulation: environments from Python, without a recipe and without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli import registry
from rlcli.environments.vector import keyed, vector
from rlcli.errors import RlcliError, nearest
from rlcli.keys import unrolled
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

_OWN = "default"  # the time limit that an environment is registered with


def make(
    name: str,
    *,
    num_envs: int | None = None,
    time_limit: int | str | None = _OWN,
    wrappers: Sequence[str | Mapping[str, Any]] = (),
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
        parameters: the factory's own, which may be traced: `jax.vmap` over them gives
            a population. `rlcli show environment NAME` lists them.
    """
    found = registry.find("environment", name)
    if found.facts.get("adapter"):
        raise RlcliError(
            f"environment `{name}` cannot be compiled",
            "its own library makes it; `rlcli train` plays it on the host",
        )
    core = _made("environment", name, parameters)
    for each in wrappers:
        options = {"name": each} if isinstance(each, str) else dict(each)
        if "name" not in options:
            raise RlcliError(f"a wrapper needs a `name`, got {options}")
        core = _made("wrapper", options.pop("name"), options, core)
    if num_envs is None:
        return _keyed_core(core)
    limit = found.facts.get("time_limit") if time_limit == _OWN else time_limit
    if isinstance(limit, str):
        raise ValueError(f"expected a time limit in steps or None, got {limit!r}")
    return keyed(vector(lambda _: core, num_envs, time_limit=limit))


def _made(
    kind: str, name: str, options: Mapping[str, Any], *core: Environment
) -> Environment:
    """What the factory of that name makes, if it knows all the options."""
    factory = registry.find(kind, name).factory
    known = registry.options(factory)
    for unknown in options.keys() - known.keys():
        raise RlcliError(
            f"{kind} `{name}` has no option `{unknown}`", nearest(unknown, known)
        )
    return factory(*core, **options)


def _keyed_core(core: Environment) -> Environment:
    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        return core.reset(unrolled(key))

    def step(state: ArrayTree, action: Array, key: Key) -> tuple[ArrayTree, TimeStep]:
        return core.step(state, action, core.draw(unrolled(key)))

    return core._replace(reset=reset, step=step, draw=keep)


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
