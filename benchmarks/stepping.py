"""Steps the environments of one library at random and reports their speed.

    echo '["bsuite/DeepSea", {"size": 8}]' | python -m benchmarks.stepping rlcli 1 2000

Used by `environments`, in one process per library, because gymnax needs another version
of Gymnasium and navix many packages. Reads lines of JSON, each an environment and its
options, and prints a line of JSON for each. Imports only JAX and the library, so that
the library's own Python can run it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

STEPS = 32  # with keys and actions drawn beforehand; repeated
SECONDS, ROUNDS = 0.1, 5  # per measurement, and their number; the fastest counts


class Benchmarked(NamedTuple):
    """The functions under test; only rlcli's have a batch axis for one environment."""

    reset: Callable[[Any], Any]  # key -> carry
    step: Callable[[Any, Any, Any], Any]  # (carry, action, key) -> carry
    sample: Callable[[Any], Any]  # key -> action


def rlcli(number: int, name: str, options: dict[str, Any]) -> Benchmarked:
    """Returns rlcli's vector, with time limit and auto-reset."""
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

    return Benchmarked(reset, step, sample)


def gymnax(number: int, name: str, options: dict[str, Any]) -> Benchmarked:
    """Returns gymnax's own `step`, vectorized as in its README."""
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

    return vectorize(Benchmarked(reset, step, space.sample), number)


def navix(number: int, name: str, options: dict[str, Any]) -> Benchmarked:
    """Returns navix's own `step`, with MiniGrid's partial view, vectorized."""
    import jax
    import navix  # pyright: ignore[reportMissingImports] - where it is installed

    view = navix.observations.symbolic_first_person
    env = navix.make(name, observation_fn=view, **options)

    def step(carry: Any, action: Any, key: Any) -> Any:
        del key  # the state has its own
        return env.step(carry, action)

    def sample(key: Any) -> Any:
        return jax.random.randint(key, (), 0, len(env.action_set))

    return vectorize(Benchmarked(env.reset, step, sample), number)


def vectorize(environment: Benchmarked, number: int) -> Benchmarked:
    """Returns the functions for several environments, with a key for each."""
    import jax

    def batched(function: Callable) -> Callable:
        def function_of_batch(*arguments: Any) -> Any:
            *others, key = arguments
            return jax.vmap(function)(*others, jax.random.split(key, number))

        return function_of_batch

    return environment if number == 1 else Benchmarked(*map(batched, environment))


def speeds(environment: Benchmarked, number: int) -> list[float]:
    """Returns steps per second: actions drawn beforehand, and inside the loop."""
    import jax

    act_keys, keys = (jax.random.split(jax.random.key(seed), STEPS) for seed in (0, 1))
    actions = jax.jit(jax.vmap(environment.sample))(act_keys)
    state = jax.jit(environment.reset)(jax.random.key(2))

    def drawn_beforehand(carry: Any, inputs: Any) -> tuple[Any, None]:
        action, key = inputs
        return environment.step(carry, action, key), None

    def drawn_inside(carry: Any, inputs: Any) -> tuple[Any, None]:
        act_key, step_key = inputs
        return environment.step(carry, environment.sample(act_key), step_key), None

    return [
        number * rate(drawn_beforehand, state, (actions, keys)),
        number * rate(drawn_inside, state, (act_keys, keys)),
    ]


def rate(body: Callable, state: Any, inputs: Any) -> float:
    """Returns steps per second of a compiled loop over `inputs`, repeated."""
    import jax

    @jax.jit
    def run_loop(state: Any, inputs: Any, times: Any) -> Any:
        def repeat(_: Any, carry: Any) -> Any:
            return jax.lax.scan(body, carry, inputs)[0]

        return jax.lax.fori_loop(0, times, repeat, state)

    def run(times: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(run_loop(state, inputs, times))
        return time.perf_counter() - start

    run(0)  # compiles
    return STEPS / fastest(run)


def fastest(run: Callable[[int], float]) -> float:
    """Returns the best time of `run(1)` in seconds; `run(n)` takes n times as long."""
    once = run(1)
    if once > 10 * SECONDS:
        return once
    times = max(1, round(SECONDS / once))
    return min(run(times) for _ in range(ROUNDS)) / times


def program(environment: Benchmarked) -> dict[str, float]:
    """Returns XLA's costs of one step: seconds to compile, operations and bytes."""
    import jax

    key = jax.random.key(0)
    carry, action = (
        jax.eval_shape(environment.reset, key),
        jax.eval_shape(environment.sample, key),
    )
    start = time.perf_counter()
    compiled = jax.jit(environment.step).lower(carry, action, key).compile()
    seconds = time.perf_counter() - start
    cost = compiled.cost_analysis() or {}
    return {
        "compile": seconds,
        "flops": cost.get("flops", 0.0),
        "bytes": cost.get("bytes accessed", 0.0),
    }


def gymnasium(name: str, number: int) -> float:
    """Returns steps per second of Gymnasium's NumPy vector, with given actions."""
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


def measure(library: str, numbers: list[int], request: list) -> dict[str, Any]:
    """Returns all measurements of one environment, `[name, options]`."""
    if library == "gymnasium":
        return {"speed": [[gymnasium(request[0], number), None] for number in numbers]}
    make = {"rlcli": rlcli, "gymnax": gymnax, "navix": navix}[library]
    # First the costs: later compilations reuse traces and so take less time.
    costs = program(make(numbers[-1], *request))
    return {"speed": [speeds(make(n, *request), n) for n in numbers]} | costs


def main() -> None:
    """Measures the environments named on stdin."""
    library, *numbers = sys.argv[1:]
    for line in sys.stdin:
        result = measure(library, [int(text) for text in numbers], json.loads(line))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
