"""Host environments: environments that JAX cannot trace, in one vector for all seeds.

The contract of an `Environment` with a `Host`. Every array has the leading axes
`[S, B]`: S seeds, B environments of each. All are NumPy arrays, except actions, which
are JAX arrays.

    reset(seeds[S] uint32) -> state, obs              starts episode 0 everywhere
    step(state, action, noise=(), cut=False) -> state, TimeStep
                                                      see `TimeStep`; `cut` is broadcast
                                                      to `[S, B]`
    host.save(state) -> arrays                        for a checkpoint
    host.restore(arrays) -> state, warning            "" if it is exact
    host.close(state)                                 releases all resources
    render(state, index) -> [H, W, 3] uint8           index: environment + B × seed
    render_final(state, index)                        the final state before a reset

`state` is a handle that changes in place: `step` returns its argument. Returned arrays
are never written to again, since JAX may still read them. `draw` returns `()`, except
for environments of `to_host_environment`.

A host environment resumes exactly without pickling: *every* episode is seeded from
(seed, environment, episode), so a checkpoint needs only these and the actions of the
current episode. `restore` replays the actions and compares the observations.
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
import jax
import numpy as np

from rlcli.environments.adapters.conversion import HostArray
from rlcli.environments.adapters.goals import GoalReward, host_goal_reward
from rlcli.environments.adapters.host_errors import (
    ExternalEnvironment as ExternalEnvironment,
)
from rlcli.environments.adapters.host_errors import close_or_warn
from rlcli.environments.adapters.host_vector import HostVectorState
from rlcli.environments.adapters.host_vector import episode_seed as episode_seed
from rlcli.environments.adapters.pools import HostVector, SyncVector
from rlcli.environments.adapters.restarting import RestartingVector
from rlcli.spaces.canonical import canonical_spaces
from rlcli.types import (
    ArrayTree,
    Environment,
    External,
    Host,
    InfoRule,
    Key,
    Step,
    wrap,
)


def sync_host_environment(
    external: ExternalEnvironment,
    make: Callable[[], gymnasium.Env],
    num_envs: int,
    seeds: int,
    goal_reward: GoalReward | None = None,
) -> Environment:
    """Builds S×B environments with `make`, stepped sequentially in this process.

    Time limits are those of `make`. An environment resets in the step that ends its
    episode, and may take `external.timeout` seconds for a step or a reset. The spaces
    are canonical (`rlcli.spaces.canonical`). `goal_reward` is by default that of an
    environment with `compute_reward`.
    """
    example = make()
    close_or_warn(external.name, example)
    return host_environment(
        external,
        (example.observation_space, example.action_space),
        lambda count: SyncVector(make, count, external.timeout),
        num_envs,
        seeds,
        make,
        vector_size=1,  # each is stepped alone, so it can be restarted alone
        goal_reward=goal_reward or host_goal_reward(external, example),
    )


def host_environment(
    external: ExternalEnvironment,
    spaces: tuple[gymnasium.Space, gymnasium.Space],
    make: Callable[[int], HostVector],
    num_envs: int,
    seeds: int,
    make_one: Callable[[], gymnasium.Env] | None = None,
    vector_size: int | None = None,
    *,
    goal_reward: GoalReward | None = None,
    is_restarting: bool = False,
    info: Mapping[str, InfoRule] = MappingProxyType({}),
) -> Environment:
    """Builds S×B environments from the vector `make(S · B)`, stepped simultaneously.

    Environment b of seed s has index b + B × s in the vector. `spaces` are its native
    observation and action spaces; those of the result are canonical. `make_one`
    makes a single environment, if the library has one, for use without the vector.

    `info` says what episodes log of the `info` that they report, see `InfoRecorder`.
    With `is_restarting`, environments that fail are restarted, `vector_size` of them
    together: a divisor of S · B, by default all of them.
    """
    arguments = {**locals()}  # of this call
    own = External(*spaces, make_one)
    observation, action = canonical_spaces(own, external.name)

    def make_state(numbers: HostArray) -> HostVectorState:
        if np.shape(numbers) != (seeds,):
            raise ValueError(f"expected {seeds} seeds, got shape {np.shape(numbers)}")
        count = seeds * num_envs
        vector: HostVector
        if is_restarting:
            size = vector_size or count
            vector = RestartingVector(make, count, size, external.timeout)
        else:
            vector = make(count)
        state = HostVectorState(
            external, action, vector, environment, np.array(numbers, np.uint32), info
        )
        for name, value in own_numbers.items():
            state.set_number(name, value)
        return state

    own_numbers: dict[str, float] = {}  # that hooks have set

    def set_number(state: HostVectorState | None, name: str, value: float) -> None:
        if state is not None:
            state.set_number(name, value)
        own_numbers[name] = value

    def reset(numbers: HostArray) -> tuple[HostVectorState, ArrayTree]:
        state = make_state(numbers)
        return state, state.begin()

    def step(
        state: HostVectorState,
        action: ArrayTree,
        noise: ArrayTree = (),
        cut: HostArray | bool = False,
    ) -> Step:
        return state, state.step(action, cut)

    def restore(arrays: Mapping[str, HostArray]) -> tuple[HostVectorState, str]:
        if arrays["episode"].shape != (seeds, num_envs):
            raise ValueError(
                f"expected {seeds} seeds of {num_envs} environments, "
                f"got {arrays['episode'].shape}"
            )
        state = make_state(arrays["seeds"])
        return state, state.restore(arrays)

    environment = Environment(
        reset=reset,
        step=step,
        observation=observation.space,
        action=action.space,
        render=HostVectorState.render,
        render_final=HostVectorState.render_final,
        parameters=HostVectorState.parameters,
        num_envs=num_envs,
        draw=lambda key: (),  # the library has its own random numbers
        external=own,
        goal_reward=goal_reward,
        info=info,
        host=Host(
            HostVectorState.save,
            restore,
            HostVectorState.close,
            functools.partial(host_environment, **arguments),
            HostVectorState.take_restarts,
            set_number,
            HostVectorState.info_statistics,
        ),
    )
    return environment


def to_host_environment(
    env: Environment, seeds: int, key: Callable[[Any], Key] = jax.random.key
) -> Environment:
    """Wraps a pure environment in the host contract, with the same results.

    `reset` uses `key(seed)`, and `step` takes the noise of the pure environment's
    `draw`, `[S, ...]`. A single seed is not vmapped, as in the compiled loop. `info` is
    that of every step, and not recorded.
    """
    if not env.pure:
        return env
    is_single = seeds == 1
    reset_batch, step_batch, read_parameters = (
        jax.jit(function if is_single else jax.vmap(function))
        for function in (env.reset, env.step, env.parameters)
    )

    def squeeze(tree: ArrayTree) -> ArrayTree:
        return jax.tree.map(lambda x: x[0], tree) if is_single else tree

    def expand(x: jax.Array) -> np.ndarray:
        return np.asarray(x)[None] if is_single else np.asarray(x)

    def reset(numbers: np.ndarray) -> tuple[ArrayTree, ArrayTree]:
        state, obs = reset_batch(squeeze(jax.vmap(key)(np.asarray(numbers, np.uint32))))
        return state, jax.tree.map(expand, obs)

    def step(
        state: ArrayTree,
        action: ArrayTree,
        noise: ArrayTree = (),
        cut: HostArray | bool = False,
    ) -> Step:
        cut = np.broadcast_to(cut, (seeds, env.num_envs))
        state, timestep = step_batch(
            state, squeeze(action), squeeze(noise), squeeze(cut)
        )
        return state, jax.tree.map(expand, timestep)

    def on_host(draw: Callable) -> Callable:
        """Returns a function of (state, index) that renders one environment."""

        def render(state: ArrayTree, index: int = 0) -> Any:
            seed, environment = divmod(index, env.num_envs)
            seed_state = state if is_single else jax.tree.map(lambda x: x[seed], state)
            return draw(jax.device_get(seed_state), environment)

        return render

    return wrap(
        env,
        keeps=["goal_reward", "frame_stack", "external"],
        reset=reset,
        step=step,
        render=on_host(env.render),
        render_final=on_host(env.render_final),
        parameters=lambda state: jax.tree.map(expand, read_parameters(state)),
        host=Host(
            save=jax.device_get,
            restore=lambda arrays: (jax.device_put(arrays), ""),
            close=lambda state: None,
        ),
    )
