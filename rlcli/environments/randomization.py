"""Randomization: numbers of an environment that every episode draws anew.

Domain randomization (Tobin et al., 2017, https://arxiv.org/abs/1703.06907; Peng et al.,
2018, https://arxiv.org/abs/1710.06537), compiled with the agent: the state of a core
has the numbers of its episode, and each step builds the core with them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli.schedules import RandomNumber
from rlcli.types import (
    Array,
    ArrayTree,
    Core,
    Key,
    Step,
    key_as_noise,
    missing_render,
    wrap,
)
from rlcli.xla.dependencies import read_leaves

# No core draws so many numbers with a key that one of them has such a counter.
_PARAMETERS = np.uint32(2**32 - 1)


class RandomizedState(NamedTuple):
    """The state of a core whose episodes draw numbers."""

    core: ArrayTree
    # float32[n]: the numbers of this episode. One array costs less than n of them.
    parameters: Array


def randomize(
    core_of: Callable[[Mapping[str, Array]], Core],
    random_numbers: Mapping[str, RandomNumber],
) -> Core:
    """A core each of whose episodes draws these random numbers.

    The episode with a key begins in the state in which it would begin without the
    draws, of the core with the same numbers. `goal_reward` is lost: it would differ
    between episodes.

    Args:
        core_of: builds the core from the numbers, which are traced. Its spaces do not
            depend on them.
        random_numbers: their distributions, by name; without any, the result is the
            core itself.
    """
    if not random_numbers:
        return core_of({})
    example = core_of({k: v.quantile(0.5) for k, v in random_numbers.items()})
    noise_depends = _noise_depends(core_of, random_numbers)

    def draw_parameters(key: Key) -> Array:
        shares = _uniform(key, len(random_numbers))
        numbers = enumerate(random_numbers.values())
        return jnp.stack([each.quantile(shares[index], jnp) for index, each in numbers])

    def name_parameters(values: Array) -> dict[str, Array]:
        return {name: values[index] for index, name in enumerate(random_numbers)}

    def reset(key: Key) -> tuple[RandomizedState, ArrayTree]:
        values = draw_parameters(key)
        state, obs = core_of(name_parameters(values)).reset(key)
        return RandomizedState(state, values), obs

    def step(state: RandomizedState, action: ArrayTree, noise: ArrayTree) -> Step:
        core = core_of(name_parameters(state.parameters))
        noise = core.draw(noise) if noise_depends else noise
        core_state, timestep = core.step(state.core, action, noise)
        return RandomizedState(core_state, state.parameters), timestep

    def render(state: RandomizedState) -> Any:
        return core_of(name_parameters(state.parameters)).render(state.core)

    return wrap(
        example,
        keeps=["frame_stack", "external", "costly_reset"],
        reset=reset,
        step=step,
        draw=key_as_noise if noise_depends else example.draw,
        render=example.render if example.render is missing_render else render,
        parameters=lambda state: name_parameters(state.parameters),
    )


def _uniform(key: Key, count: int) -> Array:
    """Uniform multiples of 2⁻²¹ in [0, 1), `[count]`: three from each hash of the key.

    Every environment draws them in every step, in case that its episode ends, and most
    of the time is that of the hashes.
    """
    counters = _PARAMETERS - np.arange(-(-count // 3), dtype=np.uint32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, counters)
    words = jax.random.key_data(keys)
    first, second = words[:, 0], words[:, 1]
    lowest = np.uint32(2**21 - 1)
    bits = [first & lowest, second & lowest, (first >> 21) << 10 | second >> 22]
    shares = jnp.stack(bits, axis=1).reshape(-1)[:count]
    return shares.astype(jnp.float32) * np.float32(2**-21)


def _noise_depends(
    core_of: Callable[[Mapping[str, Array]], Core],
    random_numbers: Mapping[str, RandomNumber],
) -> bool:
    """Whether the noise of a step depends on the numbers, not on its key alone.

    Then a step draws it, because noise is drawn before the state is known.
    """
    numbers = dict.fromkeys(random_numbers, np.float32(0))
    read = read_leaves(
        lambda numbers, key: core_of(numbers).draw(key), numbers, jax.random.key(0)
    )
    return any(read[: len(numbers)])
