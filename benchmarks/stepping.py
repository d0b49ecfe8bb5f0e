"""Steps environments of one library, at random, and says how fast: for `environments`.

    echo '["bsuite/DeepSea", {"size": 8}]' | python -m benchmarks.stepping rlcli 1 2000

A process for each library, since gymnax wants a Gymnasium of its own. It reads lines of
JSON, an environment and its options each, and answers each with another. It imports
nothing but JAX and the library, so that the library's own Python may run it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

STEPS = 32  # whose keys and actions are drawn beforehand; played over and over
SECONDS, ROUNDS = 0.1, 5  # of one measurement, and how many; the fastest counts


class Played(NamedTuple):
    """An environment as the benchmark plays it; no axis for a lone one of gymnax's."""

    reset: Callable[[Any], Any]  # key -> carry
    step: Callable[[Any, Any, Any], Any]  # (carry, action, key) -> carry
    sample: Callable[[Any], Any]  # key -> action


def rlcli(number: int, name: str, options: dict[str, Any]) -> Played:
    """Ours: the vector, with its time limit, which begins again by itself."""
    import jax.numpy as jnp

    import rlcli

    env = rlcli.make(name, num_envs=number, **options)
    ends = (jnp.zeros(number), jnp.zeros(number), jnp.zeros(number, bool))

    def reset(key: Any) -> Any:
        return *env.reset(key), ends

    def step(carry: Any, action: Any, key: Any) -> Any:
        state, timestep = env.step(carry[0], action, key)
        ends = timestep.reward, timestep.discount, timestep.last
        return state, timestep.obs, ends

    def sample(key: Any) -> Any:
        return rlcli.spaces.sample(env.action, key, (number,))

    return Played(reset, step, sample)


def gymnax(number: int, name: str, options: dict[str, Any]) -> Played:
    """Gymnax's own `step`, as its README vectorises it."""
    import gymnax  # pyright: ignore[reportMissingImports] - where it is installed
    import jax
    import jax.numpy as jnp

    env, params = gymnax.make(name, **options)
    space = env.action_space(params)

    def reset(key: Any) -> Any:
        obs, state = env.reset(key, params)
        _, _, *ends, _ = jax.eval_shape(
            env.step, key, state, jax.eval_shape(space.sample, key), params
        )
        return (
            state,
            obs,
            jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), ends),
        )

    def step(carry: Any, action: Any, key: Any) -> Any:
        obs, state, *ends, _ = env.step(key, carry[0], action, params)
        return state, obs, ends

    if number == 1:
        return Played(reset, step, space.sample)

    def several(function: Callable) -> Callable:
        def batched(*arguments: Any) -> Any:
            *others, key = arguments
            return jax.vmap(function)(*others, jax.random.split(key, number))

        return batched

    return Played(several(reset), several(step), several(space.sample))


def speeds(played: Played, number: int) -> list[float]:
    """Steps per second over all environments: actions drawn beforehand, and inside."""
    import jax

    more, keys = (jax.random.split(jax.random.key(seed), STEPS) for seed in (0, 1))
    drawn = jax.jit(jax.vmap(played.sample))(more)
    state = jax.jit(played.reset)(jax.random.key(2))

    def ahead(carry: Any, given: Any) -> tuple[Any, None]:
        action, key = given
        return played.step(carry, action, key), None

    def inside(carry: Any, given: Any) -> tuple[Any, None]:
        act_key, step_key = given
        return played.step(carry, played.sample(act_key), step_key), None

    return [
        number * rate(ahead, state, (drawn, keys)),
        number * rate(inside, state, (more, keys)),
    ]


def rate(body: Callable, state: Any, given: Any) -> float:
    """Steps per second of a compiled loop over what is given, played over and over."""
    import jax

    @jax.jit
    def play(state: Any, given: Any, times: Any) -> Any:
        def again(_: Any, carry: Any) -> Any:
            return jax.lax.scan(body, carry, given)[0]

        return jax.lax.fori_loop(0, times, again, state)

    def run(times: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(play(state, given, times))
        return time.perf_counter() - start

    run(0)  # compiles
    return STEPS / fastest(run)


def fastest(run: Callable[[int], float]) -> float:
    """Seconds that `run(1)` takes at best, where `run(n)` takes n times as long."""
    once = run(1)
    if once > 10 * SECONDS:
        return once
    times = max(1, round(SECONDS / once))
    return min(run(times) for _ in range(ROUNDS)) / times


def program(played: Played) -> dict[str, float]:
    """What XLA says of one step: seconds to compile it, its operations and bytes."""
    import jax

    key = jax.random.key(0)
    carry, action = (
        jax.eval_shape(played.reset, key),
        jax.eval_shape(played.sample, key),
    )
    start = time.perf_counter()
    compiled = jax.jit(played.step).lower(carry, action, key).compile()
    seconds = time.perf_counter() - start
    cost = compiled.cost_analysis() or {}
    return {
        "compile": seconds,
        "flops": cost.get("flops", 0.0),
        "bytes": cost.get("bytes accessed", 0.0),
    }


def gymnasium(name: str, number: int) -> float:
    """Steps per second of Gymnasium's own vector in NumPy, actions drawn beforehand."""
    import gymnasium
    import numpy as np

    envs = gymnasium.make_vec(
        name, num_envs=number, vectorization_mode="vector_entry_point"
    )
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, number))

    def run(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            for action in actions:
                envs.step(action)
        return time.perf_counter() - start

    seconds = fastest(run)
    envs.close()
    return STEPS * number / seconds


def measure(library: str, numbers: list[int], asked: list) -> dict[str, Any]:
    """All that is said of one environment, `[name, options]`."""
    if library == "gymnasium":
        return {"speed": [[gymnasium(asked[0], number), None] for number in numbers]}
    make = {"rlcli": rlcli, "gymnax": gymnax}[library]
    # The program first: what is compiled later finds parts of it traced already.
    costs = program(make(numbers[-1], *asked))
    return {"speed": [speeds(make(n, *asked), n) for n in numbers]} | costs


def main() -> None:
    """Answers until nobody asks."""
    library, *numbers = sys.argv[1:]
    for line in sys.stdin:
        answer = measure(library, [int(each) for each in numbers], json.loads(line))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
