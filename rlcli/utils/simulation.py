"""Simulation: environments in Python, without a recipe or training."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from rlcli import registry, schedules
from rlcli.environments.observation_image import with_render
from rlcli.environments.randomization import randomize
from rlcli.environments.vector import keyed_environment, vector
from rlcli.errors import RlcliError
from rlcli.recipe import grammar
from rlcli.recipe.annotations import describe_annotation, is_schedulable
from rlcli.recipe.documents import Place
from rlcli.recipe.varied_options import VariedOptions, copies_of, random_numbers_of
from rlcli.spaces.canonical import canonical_spaces
from rlcli.types import (
    OPTIONAL_FIELDS,
    Array,
    ArrayTree,
    Core,
    Environment,
    External,
    Key,
    Policy,
    TimeStep,
    Transition,
    key_as_noise,
    wrap,
)
from rlcli.xla import switches
from rlcli.xla.random_bits import unroll_key

_E = TypeVar("_E", Core, Environment)
_REGISTERED_LIMIT = "default"  # the registered time limit of the environment


@overload
def make(name: str, *, num_envs: None = None, **parameters: Any) -> Core: ...


@overload
def make(name: str, *, num_envs: int, **parameters: Any) -> Environment: ...


def make(
    name: str,
    *,
    num_envs: int | None = None,
    time_limit: int | str | None = _REGISTERED_LIMIT,
    wrappers: Sequence[str | Mapping[str, Any]] = (),
    each: Mapping[str, Any] = MappingProxyType({}),
    statistics: bool = False,
    rendering: bool = False,
    **parameters: Any,
) -> Core | Environment:
    """Builds a native environment of rlcli, whose `step` takes a key.

        env = rlcli.make("Pendulum-v1", g=9.8)
        state, obs = env.reset(key)
        state, timestep = env.step(state, action, key)

    The result is the pure core, without batch axis, time limit and auto-reset. With
    `num_envs` it is a vector environment, `[num_envs, ...]`, which truncates episodes
    at the time limit and resets automatically.

    Args:
        name: a name that `rlcli list environments` prints, except adapters such as
            `gymnasium/…`, which JAX cannot compile.
        num_envs: the number of parallel environments; None for the core.
        time_limit: steps after which the vector truncates an episode; None for no
            limit. The default is the registered limit.
        wrappers: wrappers of the core, innermost first: names, or mappings with `name`
            and options, as in a recipe.
        each: several values of parameters of a vector: environment i uses value i
            modulo their number. Or a distribution, from which each episode draws, also
            of a core: `{"length": {"uniform": [0.5, 1.5]}}`.
        statistics: whether `timestep.info` contains `episode_return`, float32, and
            `episode_length`, int32, of the episode so far.
        rendering: whether states store details that only images show, such as the cards
            of Blackjack, and vectors the final states for `render_final(state, index)`.
        parameters: options of the environment. Those that accept a schedule in recipes
            may be traced: `jax.vmap` over them gives a population. `rlcli show
            environment NAME` lists them.

    Raises:
        RlcliError: for arguments that a recipe would not accept.
    """
    switches.require_defaults()
    part = registry.find("environment", name)
    if part.facts.get("adapter"):
        raise RlcliError(
            f"environment `{name}` cannot be compiled",
            "it belongs to another library; `rlcli train` runs it on the host",
        )
    options = _check_options(part, parameters)
    if isinstance(wrappers, str | Mapping):
        raise RlcliError(f"`wrappers` is a list, got {wrappers!r}", "put it in [ ]")
    wrapper_parts = [_read_wrapper(wrapper) for wrapper in wrappers]

    def fixed_core_of(values: Mapping[str, Any]) -> Core:
        offers = {"rendering": rendering}
        core = registry.call_factory(part.factory, offers, {**options, **values})
        core = with_render(core) if rendering else core
        if core.agents and wrapper_parts:
            raise RlcliError(
                f"environment `{name}` is a game of {core.agents} agents, but "
                "wrappers wrap an environment of one agent",
                "remove `wrappers`",
            )
        for wrapper, wrapper_options in wrapper_parts:
            offers = {"core": core, "numbers": values}
            core = registry.call_factory(wrapper.factory, offers, wrapper_options)
        return core

    reader, vector_parameters = _option_reader(part), registry.options(grammar.Vector)
    size = 1 if num_envs is None else num_envs
    number, limit = (
        reader.value(vector_parameters[key].annotation, value, (key,))
        for key, value in {"num_envs": size, "time_limit": time_limit}.items()
    )
    varied = VariedOptions(reader, registry.options(part.factory), "each", ("each",))
    values = varied.read_each(each, parameters, number)
    copies, random_numbers = copies_of(values), random_numbers_of(values)

    def core_of(values: Mapping[str, Array]) -> Core:
        def core_with(drawn: Mapping[str, Array]) -> Core:
            return fixed_core_of({**values, **drawn})

        return randomize(core_with, random_numbers)

    if num_envs is None:
        if copies or time_limit != _REGISTERED_LIMIT:
            option = "`each`" if copies else "`time_limit`"
            raise RlcliError(
                f"{option} requires a vector environment, and `num_envs` is not given",
                f'`rlcli.make("{name}", num_envs=…)`',
            )
        return _record_statistics(_keyed_core(core_of({})), statistics)
    if limit == _REGISTERED_LIMIT:
        limit = part.facts.get("time_limit")
    arrays = {name: jnp.asarray(numbers) for name, numbers in copies.items()}
    env = vector(core_of, number, time_limit=limit, each=arrays, rendering=rendering)
    return _record_statistics(keyed_environment(env), statistics)


def _option_reader(part: registry.RegisteredPart) -> grammar.Reader:
    """Returns a reader of a part's options, with the rules of recipes."""

    def refuse(place: Place, message: str, hint: str) -> NoReturn:
        del place  # there is no file
        raise RlcliError(message, hint)

    return grammar.Reader(f"{part.kind} `{part.name}`", (), refuse)


def _check_options(
    part: registry.RegisteredPart, given_options: Mapping[str, Any]
) -> dict[str, Any]:
    """Checks the options of a part; traced ones must accept a schedule."""
    reader, parameters = _option_reader(part), registry.options(part.factory)
    traced_options = {
        key: value
        for key, value in given_options.items()
        if isinstance(value, Tracer) and key in parameters
    }
    for key, value in traced_options.items():
        annotation = parameters[key].annotation
        if not is_schedulable(annotation):
            message = f"`{key}` of {reader.label} cannot be traced"
            reader.fail((), message, f"give {describe_annotation(annotation)}")
        if value.shape:
            message = f"`{key}` of {reader.label} is a scalar, got shape {value.shape}"
            reader.fail((), message, "use `jax.vmap`, or `each` with `num_envs`")
    plain = {
        key: value.tolist() if isinstance(value, jax.Array | np.ndarray) else value
        for key, value in given_options.items()
        if key not in traced_options
    }
    rest = {key: each for key, each in parameters.items() if key not in traced_options}
    options = reader.options(rest, plain, tuple(traced_options))
    for key, value in options.items():
        if isinstance(value, schedules.Schedule):
            message = f"`{key}` of {reader.label} is a schedule, and there is no run"
            reader.fail((), message, "give a number, or one environment per number")
    return options | {
        parameters[key].name: value for key, value in traced_options.items()
    }


def _read_wrapper(wrapper: Any) -> tuple[registry.RegisteredPart, dict[str, Any]]:
    """The part and the options of a wrapper, given as in a recipe."""
    options = {"name": wrapper} if isinstance(wrapper, str) else wrapper
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise RlcliError(
            f"expected a wrapper's name, or a mapping with `name`, got {wrapper!r}",
            "`rlcli list wrappers` prints all wrappers",
        )
    part = registry.find("wrapper", options["name"])
    return part, _check_options(part, {k: v for k, v in options.items() if k != "name"})


def _keyed_core(core: Core) -> Core:
    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        return core.reset(unroll_key(key))

    def step(state: ArrayTree, action: Array, key: Key) -> tuple[ArrayTree, TimeStep]:
        return core.step(state, action, core.draw(unroll_key(key)))

    return wrap(core, keeps=OPTIONAL_FIELDS, reset=reset, step=step, draw=key_as_noise)


class EpisodeStatisticsState(NamedTuple):
    """The state of environments, with returns and lengths of their episodes."""

    environment: ArrayTree
    total: Array  # float32, `[]` or `[B]`: rewards so far
    length: Array  # int32: steps so far


def _record_statistics(env: _E, statistics: bool) -> _E:
    """Adds the return and the length of episodes to `info`, if `statistics`."""
    if not statistics:
        return env

    def reset(key: Key) -> tuple[EpisodeStatisticsState, ArrayTree]:
        (state, obs), shape = env.reset(key), _batch_shape(env)
        counters = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
        return EpisodeStatisticsState(state, *counters), obs

    def step(
        state: EpisodeStatisticsState, action: Array, *rest: Any
    ) -> tuple[EpisodeStatisticsState, TimeStep]:
        inner, timestep = env.step(state.environment, action, *rest)
        total, length = state.total + timestep.reward, state.length + 1
        episode_info = {"episode_return": total, "episode_length": length}
        counters = (jnp.where(timestep.last, 0, each) for each in (total, length))
        next_state = EpisodeStatisticsState(inner, *counters)
        return next_state, timestep._replace(info={**timestep.info, **episode_info})

    return wrap(
        env,
        keeps=OPTIONAL_FIELDS,
        inner_state=lambda state: state.environment,
        reset=reset,
        step=step,
    )


def _batch_shape(env: Core | Environment) -> tuple[int, ...]:
    return (env.num_envs,) if isinstance(env, Environment) else ()


class Rollout(NamedTuple):
    """The result of `rollout`."""

    steps: Transition  # `[T, ...]`; for vector environments `[T, B, ...]`
    total: Array  # return of the first episode, up to step T: `[]` or `[B]`


def rollout(
    env: Core | Environment,
    policy: Policy | Callable[[ArrayTree, Array, Key], Array],
    acting: ArrayTree,
    key: Key,
    steps: int,
) -> Rollout:
    """Runs a policy for `steps` steps, as one `jax.lax.scan`.

    A core is not reset: steps after the end of the episode are executed, but are not
    part of the return. Use `jax.vmap` over keys for a batch.

    Args:
        env: a core or a vector environment of `rlcli.make`.
        policy: a function `(acting, obs, key) -> action`, or a `Policy`, whose
            `explore` is used, with the units of agents (`rlcli.spaces.canonical`).
        acting: the parameters of the policy.
        key: a JAX PRNG key.
        steps: the number of steps.
    """
    reset_key, loop_key = jax.random.split(key)
    state, obs = env.reset(reset_key)
    batch = _batch_shape(env)
    select_action, policy_state = _action_function(policy, env)

    def step(carry: tuple, key: Key) -> tuple[tuple, tuple[Transition, Array]]:
        state, obs, policy_state, first, is_first_episode = carry
        act_key, step_key = jax.random.split(key)
        action, policy_state = select_action(acting, obs, policy_state, first, act_key)
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
        next_first = timestep.last if batch else jnp.zeros(batch, bool)
        goes_on = is_first_episode & ~timestep.last
        carry = state, timestep.obs, policy_state, next_first, goes_on
        return carry, (row, episode_reward)

    carry = state, obs, policy_state, jnp.ones(batch, bool), jnp.ones(batch, bool)
    _, (rows, rewards) = jax.lax.scan(step, carry, jax.random.split(loop_key, steps))
    return Rollout(rows, jnp.sum(rewards, axis=0))


def _action_function(
    policy: Any, env: Core | Environment
) -> tuple[Callable, ArrayTree]:
    """Returns a function that selects actions, and the initial policy state.

    `(acting, obs, policy_state, first, key) -> action, policy_state`
    """
    if not isinstance(policy, Policy):
        return lambda acting, obs, policy_state, first, key: (
            policy(acting, obs, key),
            policy_state,
        ), ()
    is_core = isinstance(env, Core)
    batch = 1 if is_core else env.num_envs
    observation, action_space = canonical_spaces(External(env.observation, env.action))

    def select_action(
        acting: ArrayTree, obs: Array, policy_state: ArrayTree, first: Array, key: Key
    ) -> tuple[Array, ArrayTree]:
        obs = observation.to_canonical(obs)
        if is_core:  # the observation of a core as a batch of 1
            obs, first = jax.tree.map(lambda leaf: leaf[None], (obs, first))
        noise = policy.draw(key, batch)
        decision, policy_state = policy.explore(acting, obs, policy_state, first, noise)
        action = action_space.to_external(decision.action)
        if is_core:
            action = jax.tree.map(lambda leaf: leaf[0], action)
        return action, policy_state

    return select_action, policy.initial(batch)
