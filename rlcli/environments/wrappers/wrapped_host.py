"""Wrapped hosts: the wrappers of recipes around environments on the host.

A wrapper takes a core. A vector on the host has none, so wrappers get a stand-in that
is stepped in two halves. Before the vector steps, the stand-in keeps the action that it
is given. Afterwards it returns what the vector has returned. Both halves are compiled,
for all environments together, on a CPU.

So a wrapper works on the host if it steps its core once, and does not read the
core's state, end episodes or log.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments.canonical_border import canonical_environment, convert_goals
from rlcli.environments.vector import VectorNoise, reset_key, step_key
from rlcli.errors import RlcliError
from rlcli.preprocessing.frame_stack import extend_host
from rlcli.spaces.canonical import canonical_spaces
from rlcli.types import Array, ArrayTree, Core, Environment, Key, Step, TimeStep, wrap
from rlcli.xla.random_bits import unroll_key

# Of the keys of resets: no stream of a run, which begin with the same key.
_STREAM = np.uint32(2**32 - 1)


class WrappedState(NamedTuple):
    """The state of the vector, and the states of its wrappers."""

    environment: ArrayTree
    memory: ArrayTree  # `[S, B, ...]`


def wrap_host(
    env: Environment, wrap_core: Callable[[Core], Core], seeds: int, owner: str
) -> Environment:
    """Wraps the environments of a vector on the host by wrappers of cores.

    Rewards, observations and random numbers are those of a vector of wrapped cores with
    this `draw`. Time limits are inside of the wrappers.

    Args:
        env: with canonical spaces, for `seeds` seeds.
        wrap_core: the wrappers. The spaces that they get and return are external.
        owner: the environment, for messages.
    """
    host, stand_in = env.host, _StandIn(env, wrap_core, owner)
    assert host is not None
    traits = _trace_wrappers(stand_in, owner)
    begin, act = map(_compile, (stand_in.reset, stand_in.act))

    @_compile
    def observe(*arguments: Any) -> tuple[ArrayTree, dict[str, ArrayTree]]:
        # Only what wrappers change: XLA computes nothing else, and each array costs.
        memory, timestep = stand_in.observe(*arguments)
        return memory, {name: getattr(timestep, name) for name in traits.changes}

    envs = np.arange(env.num_envs)

    def reset(numbers: Any) -> tuple[WrappedState, ArrayTree]:
        state, obs = env.reset(numbers)
        keys = _reset_keys(np.asarray(numbers, np.uint32), envs)
        memory, obs = jax.tree.map(np.asarray, begin(keys, obs))
        return WrappedState(state, memory), obs

    def draw(key: Key) -> VectorNoise | tuple[()]:
        core, key = stand_in.core(), unroll_key(key)
        step = jax.vmap(core.draw)(jax.vmap(step_key, (None, 0))(key, envs))
        restart = ()
        if traits.draws_at_reset:
            restart = jax.vmap(reset_key, (None, 0))(key, envs)
        return VectorNoise(restart, step)

    def step(
        state: WrappedState, action: ArrayTree, noise: VectorNoise, cut: Any = False
    ) -> Step:
        action = jax.tree.map(np.asarray, action)
        sent = act(state.memory, action, noise.core) if traits.acts else action
        inner, timestep = env.step(state.environment, sent, (), cut)
        if not traits.changes and not traits.memory.num_leaves:
            return WrappedState(inner, state.memory), timestep
        has_ended, seen = timestep.last | cut, timestep._replace(info={})
        result = observe(state.memory, action, noise, seen, has_ended)
        memory, changed = jax.tree.map(np.asarray, result)
        return WrappedState(inner, memory), timestep._replace(**changed)

    core = stand_in.core()
    return wrap(
        env,
        keeps=["render", "render_final", "parameters"],
        inner_state=lambda state: state.environment,
        reset=reset,
        step=step,
        draw=draw,
        observation=core.observation,
        action=core.action,
        goal_reward=core.goal_reward,
        frame_stack=core.frame_stack,
        external=core.external,
        host=extend_host(host, "wrapper", traits.memory, WrappedState),
    )


class _StandIn:
    """What wrappers get in place of a core, in halves of one environment each."""

    def __init__(
        self, env: Environment, wrap_core: Callable[[Core], Core], owner: str
    ) -> None:
        self.env, self.owner, self._wrap_core = env, owner, wrap_core
        self.observation, self.action = canonical_spaces(env.own, owner)

    def core(self, step: Callable | None = None, first: ArrayTree = None) -> Core:
        """The wrapped core with the canonical spaces that an agent meets."""
        return canonical_environment(self.external_core(step, first), self.owner)

    def external_core(self, step: Callable | None, first: ArrayTree = None) -> Core:
        """The wrapped core. The stand-in in it has this `step`, and no state."""
        space = self.env.own.observation
        stand_in = Core(
            reset=lambda key: ((), first),
            step=step or self.placeholder,
            observation=space,
            action=self.env.own.action,
            draw=lambda key: (),
            goal_reward=convert_goals(self.env.goal_reward, space, "to_canonical"),
            frame_stack=self.env.frame_stack,
        )
        return self._wrap_core(stand_in)

    def placeholder(self, *_: Any) -> tuple[tuple[()], TimeStep]:
        """A step before its result is known."""
        obs = spaces.zeros(self.env.own.observation)
        zero = jnp.float32(0)
        return (), TimeStep(obs, obs, zero, zero, jnp.bool_(False), {})

    def reset(self, key: Key, obs: ArrayTree) -> tuple[ArrayTree, ArrayTree]:
        """The memory of wrappers and the observation where an episode begins."""
        first = self.observation.to_external(jax.tree.map(jnp.asarray, obs))
        return self.core(None, first).reset(key)

    def act(self, memory: ArrayTree, action: ArrayTree, noise: ArrayTree) -> ArrayTree:
        """The action that the vector gets."""
        sent: list[ArrayTree] = []
        core = self.core(self.keep_action(sent))
        core.step(memory, action, noise)
        return self.action.to_canonical(jax.tree.map(jnp.asarray, sent[0]))

    def keep_action(self, sent: list[ArrayTree]) -> Callable:
        """A `step` that appends its actions to `sent`."""

        def step(state: ArrayTree, action: ArrayTree, noise: ArrayTree) -> Any:
            sent.append(action)
            return self.placeholder()

        return step

    def observe(
        self,
        memory: ArrayTree,
        action: ArrayTree,
        noise: VectorNoise,
        timestep: TimeStep,
        has_ended: Array,
    ) -> Step:
        """The memory and the time step after a step of the vector."""
        shown = self.observation.to_external(timestep.next_obs)
        inner = timestep._replace(obs=shown, next_obs=shown)
        core = self.core(lambda *_: ((), inner))
        memory, result = core.step(memory, action, noise.core)
        is_unused = isinstance(noise.restart, tuple)
        key = jax.random.key(0) if is_unused else noise.restart
        begun = self.reset(key, timestep.obs)
        memory, obs = jax.tree.map(
            lambda new, old: jnp.where(has_ended, new, jnp.asarray(old, new.dtype)),
            begun,
            (memory, result.next_obs),
        )
        return memory, result._replace(obs=obs)


class _Traits(NamedTuple):
    """What wrappers do, so that nothing else is computed at each step."""

    acts: bool  # whether they change actions
    changes: Sequence[str]  # the fields of time steps that they change
    draws_at_reset: bool
    memory: Any  # the structure of their states


def _trace_wrappers(stand_in: _StandIn, owner: str) -> _Traits:
    """Traces one step of the wrappers; refuses those that need a core of their own."""
    own = stand_in.env.own
    key, obs = jax.random.key(0), spaces.zeros(stand_in.env.observation)
    begin = jax.make_jaxpr(stand_in.reset)(key, obs)
    uses_key = any(begin.jaxpr.invars[0] in each.invars for each in begin.eqns)
    memory, _ = jax.eval_shape(stand_in.reset, key, obs)
    found: dict[str, Any] = {}
    _, given = stand_in.placeholder()
    core = stand_in.external_core(None, spaces.zeros(own.observation))

    def one_step(memory: Any, action: Any, noise: Any, timestep: TimeStep) -> Any:
        sent: list[ArrayTree] = []
        keep_action = stand_in.keep_action(sent)

        def step(*arguments: Any) -> Any:
            keep_action(*arguments)
            return (), timestep

        _, result = stand_in.external_core(step).step(memory, action, noise)
        found["steps"], found["ends"] = len(sent), result.last is not timestep.last
        found["acts"] = not _is_same(sent[0], action)
        found["changes"] = {
            name
            for name in ("next_obs", "reward", "discount")
            if not _is_same(getattr(result, name), getattr(timestep, name))
        }
        found["info"] = sorted(result.info)
        return sent[0]

    action, noise = spaces.zeros(core.action), jax.eval_shape(core.draw, key)
    problem = ""
    try:
        jax.eval_shape(one_step, memory, action, noise, given)
    except (jax.errors.UnexpectedTracerError, IndexError):  # stepped in a loop, never
        found["steps"] = 0
    if found["steps"] != 1:
        problem = "has to step its environment once"
    elif found["ends"]:
        problem = "cannot end episodes"
    elif found["info"]:
        problem = f"cannot log `{found['info'][0]}`"
    if problem:
        message = f"{owner} runs on the host, where a wrapper {problem}"
        raise RlcliError(message, "remove such a wrapper from `wrappers`")
    changes = found["changes"]
    first = spaces.zeros(own.observation)
    begun = stand_in.external_core(None, first).reset(key)[1]
    keeps_obs = core.observation == own.observation and _is_same(begun, first)
    if "next_obs" in changes or not keeps_obs:
        changes |= {"obs", "next_obs"}
    structure = jax.tree.structure(memory)
    return _Traits(found["acts"], sorted(changes), uses_key, structure)


def _is_same(new: ArrayTree, old: ArrayTree) -> bool:
    """Whether all leaves are the same objects, so nothing has changed them."""
    leaves, structure = jax.tree.flatten(new)
    old_leaves, old_structure = jax.tree.flatten(old)
    return structure == old_structure and all(map(_is, leaves, old_leaves))


def _is(new: Any, old: Any) -> bool:
    return new is old


@jax.jit
def _reset_keys(numbers: Array, envs: Array) -> ArrayTree:
    """The keys of the first episodes, `[S, B]`."""

    def of_seed(number: Array) -> ArrayTree:
        key = jax.random.fold_in(jax.random.key(number), _STREAM)
        return jax.vmap(reset_key, (None, 0))(key, envs)

    return jax.vmap(of_seed)(numbers)


def _compile(function: Callable) -> Callable:
    """Compiles a function of one environment for all of all seeds, on a CPU."""
    program = jax.jit(jax.vmap(jax.vmap(function)))
    if jax.default_backend() == "cpu":
        return program
    cpu = jax.local_devices(backend="cpu")[0]

    def call(*arguments: Any) -> Any:
        with jax.default_device(cpu):
            return program(*jax.device_put(arguments, cpu))

    return call
