"""PettingZoo: the adapter behind `pettingzoo/…`, for parallel environments.

Every agent of a copy is an environment of the batch, so one policy with shared weights
acts for all of them, and learns from the steps of all.
"""

import importlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array

from rlcli.environments.adapters.conversion import HostArray, select_rows
from rlcli.environments.adapters.host import host_environment
from rlcli.environments.adapters.host_errors import (
    ExternalEnvironment,
    close_or_warn,
    library_errors,
)
from rlcli.environments.adapters.pools import HostTimeStep, SequentialVector
from rlcli.environments.vector import count_games
from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.registry.libraries import import_library, install_command
from rlcli.types import ArrayTree, Environment

EXTRA = "pettingzoo"
# The packages of environments, by the first part of an id.
_PACKAGES = {"mpe2": "mpe2"} | {
    family: f"pettingzoo.{family}"
    for family in ("atari", "butterfly", "classic", "sisl")
}


def count_agents(id: str, options: dict[str, Any] | None) -> int:
    """The number of agents of an environment."""
    example = _make(id, options or {})
    close_or_warn(f"environment `pettingzoo/{id}`", example)
    return len(example.possible_agents)


@register(
    "environment", "pettingzoo/", adapter=True, time_limit=None, group=count_agents
)
def pettingzoo_adapter(
    id: str,
    num_envs: int,
    seeds: int,
    time_limit: int | None,
    timeout: float | None,
    rendering: bool = False,
    *,
    options: dict[str, Any] | None = None,
) -> Environment:
    """Parallel environments of PettingZoo (Terry et al., 2021), on the host.

    The id is that of a module, such as `mpe2/simple_spread_v3`; `options` are keyword
    arguments of its `parallel_env`. Each agent of each copy is one environment of the
    batch, so `num_envs` is a multiple of the number of agents, which need equal spaces.
    The episodes of a copy end when its last agent has ended. Until then an agent that
    has ended, or has not begun, observes zeros, with reward and discount 0.
    https://arxiv.org/abs/2009.14471
    """
    name = f"environment `pettingzoo/{id}`"
    keywords = dict(options or {})
    if rendering:
        keywords["render_mode"] = "rgb_array"
    example = _make(id, keywords)
    agents = list(example.possible_agents)
    spaces = tuple(
        _common_space(name, kind, agents, getattr(example, f"{kind}_space"))
        for kind in ("observation", "action")
    )
    close_or_warn(name, example)
    count_games(len(agents), num_envs)  # whole ones
    return host_environment(
        ExternalEnvironment(name, EXTRA, timeout),
        spaces,
        lambda count: ParallelVector(
            [_make(id, keywords) for _ in range(count // len(agents))],
            time_limit,
            timeout,
        ),
        num_envs,
        seeds,
        vector_size=len(agents),  # copies are stepped one by one, and restart alone
    )


class ParallelVector(SequentialVector):
    """Steps copies of a parallel environment, whose `group` is that of its agents.

    Environment i is agent i mod A of copy i // A.
    """

    def __init__(
        self, copies: Sequence[Any], time_limit: int | None, timeout: float | None
    ) -> None:
        self.agents = list(copies[0].possible_agents)
        self.group = len(self.agents)
        space = copies[0].observation_space(self.agents[0])
        action = copies[0].action_space(self.agents[0])
        super().__init__(copies, space, action, timeout)
        zeros = create_empty_array(space, n=1, fn=np.zeros)
        self._absent = select_rows(zeros, 0)
        self._limit = time_limit
        self._steps = np.zeros(len(copies), np.int64)

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`; all agents of a copy begin together."""
        observations: dict[int, dict] = {}
        first = []
        for index, seed in zip(indices, seeds, strict=True):
            copy, row = divmod(int(index), self.group)
            if copy not in observations:
                self._steps[copy] = 0
                observations[copy], _ = self._call(copy, "reset", seed=seed)
            first.append(observations[copy].get(self.agents[row], self._absent))
        return self._stack(first)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `HostVector.step`."""
        obs, reward, discount, last, infos = [], [], [], [], []
        self._steps += 1
        for index, copy in enumerate(self.copies):
            place = index * self.group
            actions = {
                agent: self._select(action, place + row)
                for row, agent in enumerate(self.agents)
                if agent in copy.agents
            }
            seen, rewards, terminated, _, info = self._call(index, "step", actions)
            is_over = not copy.agents or self._steps[index] == self._limit
            for agent in self.agents:
                # Truncated before the others, it has no later value either.
                is_alive = agent in actions and not terminated[agent]
                is_alive &= is_over or agent in copy.agents
                obs.append(seen.get(agent, self._absent))
                is_acting = agent in actions
                reward.append(np.asarray(rewards[agent]).item() if is_acting else 0.0)
                discount.append(float(is_alive))
                last.append(is_over)
                infos.append(info.get(agent, {}))
        return HostTimeStep(self._stack(obs), reward, discount, last, infos)


def _make(id: str, keywords: dict[str, Any]) -> Any:
    """One copy of an environment."""
    name = f"environment `pettingzoo/{id}`"
    module = _find_module(id, name)
    hint = "`options` are the keyword arguments of `parallel_env`"
    with library_errors(name, "made", hint):
        return module.parallel_env(**deepcopy(keywords))


def _find_module(id: str, name: str) -> Any:
    """The module of an environment; it has to have a parallel version."""
    family, _, short = id.partition("/")
    if family not in _PACKAGES or not short.isidentifier():
        raise RlcliError(
            f"there is no {name}",
            "the names are `pettingzoo/FAMILY/NAME_vN` with a family of "
            + ", ".join(f"`{family}`" for family in _PACKAGES),
        )
    package = _PACKAGES[family]
    import_library(package, EXTRA)
    try:
        module = importlib.import_module(f"{package}.{short}")
    except ImportError as error:
        if error.name == f"{package}.{short}":
            hint = "https://pettingzoo.farama.org lists the environments"
            raise RlcliError(f"there is no {name}", hint) from error
        library = f"pettingzoo[{family}]" if family != "mpe2" else EXTRA
        message = f"{name} lacks a dependency: {error}"
        raise RlcliError(message, install_command(library)) from error
    if not hasattr(module, "parallel_env"):
        raise RlcliError(
            f"{name} is turn-based: its agents do not act simultaneously",
            "only environments with a `parallel_env` are supported",
        )
    return module


def _common_space(
    name: str, kind: str, agents: Sequence[str], space_of: Callable[[str], Any]
) -> Any:
    """The space of all agents; raises an error if they differ."""
    space = space_of(agents[0])
    for agent in agents[1:]:
        if space_of(agent) != space:
            raise RlcliError(
                f"{name}: agents `{agents[0]}` and `{agent}` have different {kind} "
                "spaces, but share the weights of one policy",
                "choose an environment whose agents have equal spaces",
            )
    return space
