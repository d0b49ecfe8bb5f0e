"""Random numbers in a loop of your own: keys split in each step, before, and noise.

    python -m benchmarks.random_numbers

Steps an environment with random actions in a `lax.scan`. Prints the processor time of a
step of all environments: with a key that each step splits, with keys split before the
scan, and with actions and noise drawn before the scan (`env.draw`), as rlcli's own loop
draws them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax

import rlcli
from rlcli.types import Array, Environment, Key
from rlcli.xla import threads

SIZES = (("CartPole-v1", 4), ("CartPole-v1", 64), ("MinAtar/Breakout-v1", 64))
STEPS, ROUNDS = 2_000, 9


def loops(env: Environment, actions: int) -> dict[str, Callable[[Key], Array]]:
    """The three loops; each returns the sum of all rewards."""

    def step_with_key(state, key):
        act_key, step_key = jax.random.split(key)
        action = jax.random.randint(act_key, (env.num_envs,), 0, actions)
        state, timestep = env.step(state, action, step_key)
        return state, timestep.reward

    def split_inside(key):
        def step(carry, _):
            state, key = carry
            key, step_key = jax.random.split(key)
            state, reward = step_with_key(state, step_key)
            return (state, key), reward

        state, _ = env.reset(key)
        return jax.lax.scan(step, (state, key), None, STEPS)[1].sum()

    def split_before(key):
        state, _ = env.reset(key)
        keys = jax.random.split(key, STEPS)
        return jax.lax.scan(step_with_key, state, keys)[1].sum()

    def draw_before(key):
        def step(state, inputs):
            state, timestep = env.step(state, *inputs)
            return state, timestep.reward

        state, _ = env.reset(key)
        act_key, step_key = jax.random.split(key)
        action = jax.random.randint(act_key, (STEPS, env.num_envs), 0, actions)
        noise = jax.vmap(env.draw)(jax.random.split(step_key, STEPS))
        return jax.lax.scan(step, state, (action, noise))[1].sum()

    return {each.__name__: each for each in (split_inside, split_before, draw_before)}


def main() -> None:
    """Prints a row for each environment."""
    threads.apply_layout(threads.Layout("one", 1))
    print("| environment | split in each step | split before | noise before |")
    print("|---|---|---|---|")
    for name, num_envs in SIZES:
        env = rlcli.make(name, num_envs=num_envs)
        compiled = {
            key: jax.jit(loop) for key, loop in loops(env, env.action.n).items()
        }
        times: dict[str, list[float]] = {key: [] for key in compiled}
        for seed in range(ROUNDS + 1):  # the first round compiles
            for key, loop in compiled.items():
                begin = time.process_time()
                jax.block_until_ready(loop(jax.random.key(seed)))
                times[key].append(time.process_time() - begin)
        cells = (f"{1e6 * min(each[1:]) / STEPS:.2f} µs" for each in times.values())
        print(f"| {name}, {num_envs} at once | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
