"""Host-loop benchmark: DQN on Gymnasium's CartPole, in rlcli and in a plain loop.

    python -m benchmarks.host

One environment, batch 32, one update per step. The plain loop learns from the last
timestep and selects the next action in one compiled call, as rlcli does, and does
nothing else: no statistics, no metrics, no seeding of episodes. All loops are pinned to
one core, as in rlcli: on two cores the speed of the plain loop varies from 3 500 to 6
300 steps per second with the scheduling of its threads. Compile time is not included.
Gymnasium's own stepping is measured separately. The second table is the cost of what
an environment reports in `info`: six numbers, which rlcli logs, and as many texts,
which it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from benchmarks import pairs
from benchmarks.loop import RECIPE
from rlcli.runs import thread_layout
from rlcli.xla import threads
from rlcli.xla.threads import pin_threads

STEPS, ROUNDS = 3_000, 11


def plain_loop() -> Callable[[int], None]:
    """Returns a function that steps the environment and learns."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from benchmarks import plain_dqn

    begin, draw, act, store, learn = plain_dqn.parts()
    env = gymnasium.make("CartPole-v1")
    unused = ("obs", "elapsed", "return", "average")

    def learn_and_act(state: dict[str, Any], row: dict[str, Any], obs: Any) -> tuple:
        _, uniform, bits = draw(jax.random.fold_in(state["key"], state["steps"]))
        ring = store(state["ring"], row, state["steps"])
        count = state["steps"] + 1
        carry = state["params"], state["target"], state["optimizer"]
        params, target, moments = learn(carry, ring, count, bits)
        action = act(params, obs, count, uniform)
        learned = {"params": params, "target": target, "optimizer": moments}
        return state | learned | {"ring": ring, "steps": count}, action

    dispatch = jax.jit(learn_and_act, donate_argnums=0)
    state = {name: leaf for name, leaf in begin(0).items() if name not in unused}
    obs, action = env.reset(seed=0)[0], jnp.int32(0)

    def advance(steps: int) -> None:
        nonlocal state, obs, action
        for _ in range(steps):
            host_action = np.int32(action)
            next_obs, reward, fallen, truncated, _ = env.step(host_action)
            row = {
                "obs": obs,
                "action": host_action,
                "reward": np.float32(reward),
                "discount": np.float32(not fallen),
                "next_obs": next_obs,
            }
            obs = env.reset()[0] if fallen or truncated else next_obs
            state, action = dispatch(state, row, obs)
        jax.block_until_ready(state)

    return advance


def stepping() -> Callable[[int], None]:
    """Returns a function that only steps Gymnasium."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)

    def advance(steps: int) -> None:
        for step in range(steps):
            *_, fallen, truncated, _ = env.step(step % 2)
            if fallen or truncated:
                env.reset()

    return advance


def reporting_cartpole(value: float | str = 1.0) -> gymnasium.Env:
    """CartPole that reports `value` six times in `info`."""
    names = [f"reward_{term}" for term in ("ctrl", "forward", "survive")]
    names += ["x_position", "x_velocity", "energy"]
    env: Any = gymnasium.make("CartPole-v1")
    step = env.unwrapped.step

    def report(action: Any) -> tuple:
        return *step(action)[:4], dict.fromkeys(names, value)

    env.unwrapped.step = report
    return env


def rlcli_loop(environment: Mapping[str, Any]) -> Callable[[int], None]:
    """Returns rlcli's loop in this environment."""
    import jax

    from rlcli import loop, recipe
    from rlcli.assembly import build

    data = {**RECIPE, "environment": environment}
    rlcli_loop = loop.make_loop(build(recipe.load_recipe(data)))
    progress = rlcli_loop.begin()

    def advance(steps: int) -> None:
        nonlocal progress
        progress, _ = rlcli_loop.advance(progress, steps)
        jax.block_until_ready(progress.iteration)

    return advance


def main() -> None:
    """Prints steps per second of each loop, and the ratios of rlcli to the others."""
    threads.apply_layout(thread_layout.choose_layout(RECIPE))
    threads.disable_async_dispatch()

    def pin(advance: Callable[[int], None]) -> pairs.Loop:
        def run(steps: int) -> None:
            with pin_threads():
                advance(steps)

        return pairs.Loop(run, STEPS)

    ours = {"rlcli": pin(rlcli_loop({"name": "gymnasium/CartPole-v1"}))}
    others = {"plain": pin(plain_loop()), "only Gymnasium": pin(stepping())}
    pairs.compare("DQN on Gymnasium's CartPole", ours, others, ROUNDS)
    name = "benchmarks.host:reporting_cartpole"
    numbers, texts = (
        pin(rlcli_loop({"name": name, "value": value})) for value in (1.0, "text")
    )
    pairs.compare(
        "six values in `info`", {"numbers": numbers}, {"texts": texts}, 4 * ROUNDS
    )


if __name__ == "__main__":
    main()
