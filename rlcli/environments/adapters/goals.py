"""Goals of host environments: the rewards of other goals, for the replay `hindsight`.

Environments of Gymnasium-Robotics, and others with the same methods, compute rewards
and terminations from goals: `compute_reward(achieved, desired, info)` and, if episodes
can terminate, `compute_terminated`. The compiled update calls them on the host.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlcli.environments.adapters.conversion import HostArray
from rlcli.environments.adapters.host_errors import ExternalEnvironment
from rlcli.errors import RlcliError, quote
from rlcli.registry import plugins
from rlcli.types import Array, ArrayTree

GoalReward = Callable[[ArrayTree, ArrayTree], tuple[Array, Array]]
FunctionPath = Annotated[str, "import path"]  # `module:function`
_HINT = "set `goal_reward: module:function`, a function in JAX that replaces it"


def import_goal_reward(name: str, path: str) -> GoalReward:
    """Imports a function of JAX: (achieved, desired) -> reward, discount."""
    function: Any = plugins.import_factory("goal_reward", path)

    def goal_reward(achieved: ArrayTree, desired: ArrayTree) -> tuple[Array, Array]:
        result = function(achieved, desired)
        if not isinstance(result, tuple) or len(result) != 2:
            raise RlcliError(
                f"{name}: `goal_reward` {quote(path)} returned "
                f"{type(result).__name__} instead of a reward and a discount",
                "return `reward, discount`; the discount is 0 where an episode "
                "terminates, else 1",
            )
        return result

    return goal_reward


def host_goal_reward(
    external: ExternalEnvironment, env: gymnasium.Env
) -> GoalReward | None:
    """The `goal_reward` of an environment with `compute_reward`; None for any other.

    `env` may be closed: the methods are functions of their arguments.
    """
    space, base = env.observation_space, env.unwrapped
    members = space.spaces if isinstance(space, spaces.Dict) else {}
    goals = [members.get("achieved_goal"), members.get("desired_goal")]
    if not hasattr(base, "compute_reward") or not all(
        isinstance(goal, spaces.Box) for goal in goals
    ):
        return None

    def goal_reward(achieved: ArrayTree, desired: ArrayTree) -> tuple[Array, Array]:
        reward = _host_function(external, base, "compute_reward", goals)
        value = reward(achieved, desired)
        if not hasattr(base, "compute_terminated"):
            return value, jnp.ones_like(value)
        ended = _host_function(external, base, "compute_terminated", goals)
        return value, 1 - ended(achieved, desired)

    return goal_reward


def _host_function(
    external: ExternalEnvironment, env: Any, method: str, goals: Sequence[Any]
) -> Callable[[ArrayTree, ArrayTree], Array]:
    """A traceable function of two goals that calls a method on the host, in batches.

    Some methods take batches, others only single goals: an example shows which.
    """
    compute = getattr(env, method)

    def compute_each(achieved: HostArray, desired: HostArray) -> HostArray:
        pairs = zip(achieved, desired, strict=True)
        return np.array([float(compute(*pair, {})) for pair in pairs], np.float32)

    def compute_batch(achieved: HostArray, desired: HostArray) -> HostArray:
        return np.asarray(compute(achieved, desired, {}), np.float32)

    random = np.random.default_rng(0)
    examples = [random.normal(size=(2, *goal.shape)) for goal in goals]
    example = [  # the last pair: the goal is achieved
        np.concatenate([values, np.zeros_like(values[:1])]).astype(goal.dtype)
        for values, goal in zip(examples, goals, strict=True)
    ]
    try:
        expected = compute_each(*example)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        message = f"{external.name} failed in `{method}`: {plugins.reason(error)}"
        raise RlcliError(message, _HINT) from error
    try:
        found = compute_batch(*example)
        takes_batches = found.shape == expected.shape and np.allclose(found, expected)
    except Exception:  # noqa: BLE001 - written for single goals
        takes_batches = False
    compute_all = compute_batch if takes_batches else compute_each

    def call(achieved: Any, desired: Any) -> HostArray:
        axes = np.shape(achieved)[: np.ndim(achieved) - len(goals[0].shape)]
        flat = [
            np.asarray(values, goal.dtype).reshape(-1, *goal.shape)
            for values, goal in zip((achieved, desired), goals, strict=True)
        ]
        return compute_all(*flat).reshape(axes)

    shape = jax.ShapeDtypeStruct((), np.float32)
    return lambda achieved, desired: jax.pure_callback(
        call, shape, achieved, desired, vmap_method="broadcast_all"
    )
