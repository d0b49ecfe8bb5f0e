"""EnvPool: the adapter behind `envpool/…`, a C++ thread pool of environments."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np

from rlcli.environments.adapters.conversion import HostArray, canonical_converter
from rlcli.environments.adapters.host import host_environment
from rlcli.environments.adapters.host_errors import (
    ExternalEnvironment,
    close_or_warn,
    library_errors,
    with_timeout,
)
from rlcli.environments.adapters.pools import (
    NO_TIME_LIMIT,
    HostTimeStep,
    HostVector,
    host_timestep,
)
from rlcli.errors import RlcliError, quote, suggest
from rlcli.registry import register
from rlcli.registry.libraries import import_library
from rlcli.types import ArrayTree, Environment
from rlcli.xla.threads import most_threads

EXTRA = "envpool"
# What EnvPool itself adds to `info`.
_OF_POOLS = frozenset(("env_id", "players", "elapsed_step", "terminated"))
REGISTERED_LIMIT = "default"  # the time limit that the id is registered with


@register("environment", "envpool/", adapter=True, time_limit=REGISTERED_LIMIT)
def envpool_adapter(
    id: str,
    num_envs: int,
    seeds: int,
    time_limit: int | Literal["default"] | None,
    timeout: float | None,
    rendering: bool = False,
    *,
    options: dict[str, Any] | None = None,
) -> Environment:
    """Environments of EnvPool (Weng et al., 2022), on the host.

    `options` are EnvPool's configuration, such as `num_threads`. EnvPool seeds an
    environment at construction, not at every episode, so a resumed run starts new
    episodes. https://arxiv.org/abs/2206.10558
    """
    envpool = import_library("envpool", EXTRA)
    name = f"environment `envpool/{id}`"
    if id not in envpool.list_all_envs():
        hint = suggest(id, envpool.list_all_envs(), "envpool/")
        raise RlcliError(f"there is no {name}", hint)
    keywords = dict(options or {})
    _check_threads(name, keywords.get("num_threads"))
    if time_limit != REGISTERED_LIMIT:
        steps = NO_TIME_LIMIT if time_limit is None else time_limit
        keywords["max_episode_steps"] = steps
    if rendering:
        keywords["render_mode"] = "rgb_array"

    def make(count: int, env_seeds: Sequence[int]) -> Any:
        config = {"num_envs": count, "env_seed": [*env_seeds]}
        hint = "`options` are EnvPool's own configuration"
        with library_errors(name, "made", hint), warnings.catch_warnings():
            # EnvPool creates float32 Boxes from float64 bounds.
            warnings.filterwarnings("ignore", message=".*precision lowered")
            env = envpool.make(id, env_type="gymnasium", **config, **keywords)
            _ = env.observation_space, env.action_space  # created on access
        return env

    example = make(1, [0])
    spaces = example.observation_space, example.action_space
    close_or_warn(name, example)
    external = ExternalEnvironment(name, EXTRA, timeout)

    def make_vector(count: int) -> _EnvPoolVector:
        return _EnvPoolVector(make, count, spaces[0], timeout, rendering)

    return host_environment(external, spaces, make_vector, num_envs, seeds)


def _check_threads(name: str, count: Any) -> None:
    """Refuses more threads than this machine can use: a stored recipe may name any."""
    most = most_threads()
    if isinstance(count, int) and count > most:
        raise RlcliError(
            f"{name}: `num_threads` is {quote(count)}, more than this machine can use",
            f"set it to at most {most}",
        )


class _EnvPoolVector(HostVector):
    """An EnvPool vector, created with the seeds of the first episodes."""

    is_replayable = False

    def __init__(
        self,
        make: Any,
        count: int,
        observation: gymnasium.Space,
        timeout: float | None,
        draws: bool,
    ) -> None:
        self.can_render = draws
        self._make = make
        self._count = count
        self._to_canonical = canonical_converter(observation)
        self._timeout = timeout
        self._env: Any = None

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`; only the first call uses the seeds."""
        if self._env is None:
            self._env = self._make(self._count, seeds)
            self._reset = with_timeout(self._env.reset, self._timeout)
            self._step = with_timeout(self._env.step, self._timeout)
        obs, _ = self._reset(indices.astype(np.int32))
        return self._to_canonical(obs)

    def step(self, action: ArrayTree) -> HostTimeStep:
        obs, *numbers, info = self._step(action)
        info = {name: each for name, each in info.items() if name not in _OF_POOLS}
        return host_timestep(self._to_canonical(obs), *numbers, info=[info])

    def render(self, index: int) -> HostArray:
        return np.asarray(self._env.render(np.array([index], np.int32)))[0]

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
