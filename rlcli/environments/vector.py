"""The vector: B copies of a core with auto-reset.

A core implements only its task. The vector adds the batch axis, the time limit and
auto-reset, and draws all random numbers of a step, once per batch.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlcli.environments.level_sampling import LevelSampler
from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError
from rlcli.types import (
    OPTIONAL_FIELDS,
    Array,
    ArrayTree,
    Core,
    Environment,
    Key,
    Step,
    key_as_noise,
    wrap,
)
from rlcli.xla import backend
from rlcli.xla.data_axis import share_indices
from rlcli.xla.random_bits import unroll_key


class VectorState(NamedTuple):
    """The state of B environments."""

    core: ArrayTree  # the state of the core, `[B, ...]`
    elapsed: Array  # int32[B]: steps of the episode so far
    # With `rendering`: the core's state after the last step, before any reset.
    final: ArrayTree = ()
    levels: ArrayTree = ()  # the `LevelState` of a sampler of levels


class VectorNoise(NamedTuple):
    """The random numbers of one step of B environments, `[B, ...]`."""

    # Initial state and observation, used if the episode ends; for cores whose reset is
    # costly, the key for them; with levels, the key that chooses one.
    restart: ArrayTree
    core: ArrayTree  # noise of the core's step


def vector(
    core_of: Callable[[Mapping[str, Array]], Core],
    num_envs: int,
    *,
    time_limit: int | None = None,
    each: Mapping[str, Array] | None = None,
    levels: LevelSampler | None = None,
    rendering: bool = False,
) -> Environment:
    """Runs `num_envs` copies of a core, each restarting when its episode ends.

    An episode is truncated at the time limit: `last` is true, but `discount` stays 1.
    If `last`, `next_obs` is the true final observation and `obs` the first of the new
    episode. `step(…, cut)` begins new episodes where `cut`, too.
    The noise of environment i depends only on (key, i), not on `num_envs`. If several
    devices share the environments of an agent, i counts those of all of them.
    Of a core with A agents there are `num_envs` / A copies, the games, and environment
    i is agent i mod A of game i // A.

    Args:
        core_of: builds the core from the values of `each`, which are traced.
        time_limit: steps after which an episode is truncated; None: no limit.
        each: options per environment, `[n]` each: environment i takes value i mod n.
        levels: chooses the level of each episode, whose key then begins it.
        rendering: whether to store final states, for `render_final`.
    """
    each = each or {}

    def values_of(index: int | Array) -> dict[str, Array]:
        return values_at(each, index)

    # Only its spaces and flags are used, which do not depend on `each`.
    example = core_of(values_of(0))
    if example.agents:
        if levels is not None:
            message = f"a game of {example.agents} agents takes no `levels`"
            raise RlcliError(message, "remove `environment.levels`")
        num_envs = count_games(example.agents, num_envs)

    # Functions, so that they are traced: constants would occupy memory before any
    # program runs, even with a billion environments.
    def environments() -> Array:
        return share_indices(num_envs)

    is_reset_late = levels is not None  # its key is not known before the step
    resets_on_demand = (example.costly_reset or is_reset_late) and backend.is_cpu()
    reset_keys = jax.vmap(reset_key, (None, 0))
    step_keys = jax.vmap(step_key, (None, 0))
    core_reset = jax.vmap(lambda values, key: core_of(values).reset(key))
    core_draw = jax.vmap(lambda values, key: core_of(values).draw(key))
    core_step = jax.vmap(lambda values, *rest: core_of(values).step(*rest))

    def final_of(core: ArrayTree) -> ArrayTree:
        return core if rendering else ()

    def reset(key: Key) -> tuple[VectorState, ArrayTree]:
        key = unroll_key(key)
        indices = environments()
        keys, chosen = reset_keys(key, indices), ()
        if levels is not None:
            chosen = levels.begin(keys)
            keys = levels.keys(chosen)
        core, obs = core_reset(values_of(indices), keys)
        elapsed = jnp.zeros(num_envs, jnp.int32)
        return VectorState(core, elapsed, final_of(core), chosen), obs

    def draw(key: Key) -> VectorNoise:
        key = unroll_key(key)
        indices = environments()
        values = values_of(indices)
        restart = reset_keys(key, indices)
        if not (resets_on_demand or is_reset_late):
            restart = core_reset(values, restart)
        return VectorNoise(restart, core_draw(values, step_keys(key, indices)))

    def step(
        state: VectorState,
        action: ArrayTree,
        noise: VectorNoise,
        cut: Array | bool = False,
    ) -> Step:
        values = values_of(environments())
        core, timestep = core_step(values, state.core, action, noise.core)
        elapsed = state.elapsed + 1
        last = timestep.last
        if time_limit is not None:
            last = last | (elapsed >= time_limit)
        has_ended = last | cut
        final, restart, chosen = final_of(core), noise.restart, state.levels
        if levels is not None:
            chosen = levels.step(chosen, timestep.reward, last, has_ended, restart)
            restart = levels.keys(chosen)
        if resets_on_demand:

            def begin_episode(index: Array) -> tuple[ArrayTree, ArrayTree]:
                own = {name: option[index] for name, option in values.items()}
                return core_of(own).reset(restart[index])

            core, obs = replace_one_by_one(
                has_ended, begin_episode, (core, timestep.next_obs)
            )
        else:
            restart = core_reset(values, restart) if is_reset_late else restart
            core, obs = select_per_environment(
                has_ended, restart, (core, timestep.next_obs)
            )
        elapsed = jnp.where(has_ended, 0, elapsed)
        state = VectorState(core, elapsed, final, chosen)
        return state, timestep._replace(obs=obs, last=last)

    def render_core(core: ArrayTree, index: int) -> Any:
        single_core = jax.tree.map(lambda leaf: leaf[index], core)
        return to_rgb(core_of(values_of(index)).render(single_core), "environment")

    def render(state: VectorState, index: int = 0) -> Any:
        return render_core(state.core, index)

    def render_final(state: VectorState, index: int = 0) -> Any:
        return render_core(state.final, index) if rendering else None

    def parameters(state: VectorState) -> Mapping[str, Array]:
        level = {} if levels is None else {"level": levels.first + state.levels.level}
        return {
            **level,
            **values_of(environments()),
            **jax.vmap(example.parameters, axis_size=num_envs)(state.core),
        }

    environment = Environment(
        reset=reset,
        step=step,
        observation=example.observation,
        action=example.action,
        render=render,
        num_envs=num_envs,
        draw=draw,
        render_final=render_final,
        parameters=parameters,
        external=example.external,
        # With `each` it would differ between the environments.
        goal_reward=None if each else example.goal_reward,
        frame_stack=example.frame_stack,
    )
    return _split_agents(environment, example.agents) if example.agents else environment


def count_games(agents: int, num_envs: int) -> int:
    """The number of games whose agents are `num_envs` environments."""
    if num_envs % agents:
        raise RlcliError(
            f"the environment has {agents} agents, each of which is one environment, "
            f"but `num_envs` is {num_envs}",
            f"make `num_envs` a multiple of {agents}",
        )
    return num_envs // agents


def _split_agents(games: Environment, agents: int) -> Environment:
    """The vector whose environments are the agents of a vector of games."""
    count = games.num_envs * agents

    def split(tree: ArrayTree) -> ArrayTree:
        return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), tree)

    def reset(key: Key) -> tuple[ArrayTree, ArrayTree]:
        state, obs = games.reset(key)
        return state, split(obs)

    def step(
        state: ArrayTree, action: ArrayTree, noise: ArrayTree, cut: Array | bool = False
    ) -> Step:
        action = jax.tree.map(
            lambda leaf: leaf.reshape(games.num_envs, agents, *leaf.shape[1:]), action
        )
        cut = jnp.broadcast_to(cut, (count,)).reshape(games.num_envs, agents).any(1)
        state, timestep = games.step(state, action, noise, cut)
        shared = (timestep.last, timestep.info)
        last, info = jax.tree.map(lambda leaf: jnp.repeat(leaf, agents), shared)
        own = split(timestep._replace(last=(), info={}))
        return state, own._replace(last=last, info=info)

    return wrap(
        games,
        keeps=["frame_stack", "external"],
        reset=reset,
        step=step,
        num_envs=count,
        render=lambda state, index=0: games.render(state, index // agents),
        render_final=lambda state, index=0: games.render_final(state, index // agents),
        parameters=lambda state: jax.tree.map(
            lambda leaf: jnp.repeat(leaf, agents), games.parameters(state)
        ),
    )


def values_at(each: Mapping[str, Any], index: int | Array) -> dict[str, Array]:
    """The options of environment `index` of a vector: value i modulo their number."""
    return {
        name: jnp.asarray(options)[index % len(options)]
        for name, options in each.items()
    }


# Even numbers are for resets and odd ones for steps: one hash for each key.
def reset_key(key: Key, index: Array | int) -> Key:
    """The key with which environment `index` of a vector starts an episode."""
    return jax.random.fold_in(key, 2 * index)


def step_key(key: Key, index: Array | int) -> Key:
    """The key with which environment `index` of a vector draws the noise of a step."""
    return jax.random.fold_in(key, 2 * index + 1)


def keyed_environment(env: Environment) -> Environment:
    """Returns the environment with `step(state, action, key)`."""

    def step(state: ArrayTree, action: ArrayTree, key: Key) -> Step:
        return env.step(state, action, env.draw(key))

    return wrap(env, keeps=OPTIONAL_FIELDS, step=step, draw=key_as_noise)


def select_per_environment(
    condition: Array, new: ArrayTree, old: ArrayTree
) -> ArrayTree:
    """Selects `new` where `condition` `[B]` is true, leaf by leaf, `[B, ...]` each."""

    def choose(new: Array, old: Array) -> Array:
        mask = condition.reshape(condition.shape + (1,) * (jnp.ndim(old) - 1))
        return jnp.where(mask, new, old)

    return jax.tree.map(choose, new, old)


def replace_one_by_one(
    condition: Array, new: Callable[[Array], ArrayTree], old: ArrayTree
) -> ArrayTree:
    """Replaces row i of all leaves by `new(i)` where `condition` `[B]` is true.

    `new` is computed once for each such row, one after the other.
    """

    def replace_first(carry: tuple[Array, ArrayTree]) -> tuple[Array, ArrayTree]:
        waiting, rows = carry
        index = jnp.argmax(waiting)
        rows = jax.tree.map(
            lambda leaf, row: jnp.asarray(leaf).at[index].set(row), rows, new(index)
        )
        return jnp.asarray(waiting).at[index].set(False), rows

    start = (condition, old)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), replace_first, start)[1]
