"""Policy function: the greedy policy of a run as a function of named arrays."""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np

from rlcli import spaces
from rlcli.evaluation.export.graph import Graph, needed_inputs, trace
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.types import Array

FIRST = "first"
_STATE, _NEXT = "state", "next_state"


class Port(NamedTuple):
    """An array of an observation or action: its name, its place, and its space."""

    name: str
    path: tuple[Any, ...]  # keys of Dicts and indices of Tuples
    space: gymnasium.Space


class PolicyFunction(NamedTuple):
    """`compute(inputs) -> outputs`, dicts of arrays with a batch axis, by name."""

    compute: Callable[[dict[str, Array]], dict[str, Array]]
    inputs: Mapping[str, Array]  # one of each, without the batch axis
    observation: Sequence[Port]
    action: Sequence[Port]
    state: Mapping[str, np.ndarray]  # by the input's name, before the first observation
    graph: Graph

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs: first the actions, then the next state."""
        actions = [port.name for port in self.action]
        return actions + [next_name(name) for name in self.state]


def next_name(name: str) -> str:
    """The output that is the next value of an input that is a state."""
    return f"{_NEXT}{name.removeprefix(_STATE)}"


def make_policy_function(policy: TrainedPolicy) -> PolicyFunction:
    """The greedy policy, without what no action depends on.

    That is state, and members of observations that only critics read. One array of the
    observation stays, because it has the size of the batch.
    """
    names = ("observation", "action")
    pairs = zip(policy.spaces, names, strict=True)
    observation, action = (tuple(_ports(space, name)) for space, name in pairs)
    initial = policy.initial_state()
    leaves, structure = jax.tree.flatten((initial.memory, initial.frames))
    state = {f"{_STATE}.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    key = jax.random.key(0)  # the same action wherever several are equally good

    def select_action(inputs: dict[str, Array]) -> dict[str, Array]:
        """The action for one observation."""
        arrays = (inputs[port.name] for port in observation)  # in the order of a space
        obs = spaces.map_leaves(lambda _: next(arrays), policy.spaces.observation)
        memory, frames = structure.unflatten([inputs[name] for name in state])
        before = initial._replace(first=inputs[FIRST], memory=memory, frames=frames)
        chosen, after = policy.act(obs, before, key=key)
        entries = {
            port.name: functools.reduce(operator.getitem, port.path, chosen)
            for port in action
        }
        leaves = jax.tree.leaves((after.memory, after.frames))
        return entries | dict(zip(map(next_name, state), leaves, strict=True))

    inputs = {port.name: spaces.zeros(port.space) for port in observation}
    inputs |= {FIRST: np.array(True), **state}
    graph, outputs = trace(jax.vmap(select_action), inputs), {p.name for p in action}
    while True:
        needed = needed_inputs(graph, outputs)
        states = {next_name(name) for name in state if name in needed}
        if states <= outputs:
            break
        outputs |= states
    ports = [port for port in observation if port.name in needed] or [*observation]
    kept = {port.name for port in ports} | needed
    unread = {name: leaf for name, leaf in inputs.items() if name not in kept}

    def compute(given: dict[str, Array]) -> dict[str, Array]:
        results = select_action({**given, **unread})
        return {name: results[name] for name in sorted(outputs)}

    inputs = {name: leaf for name, leaf in inputs.items() if name in kept}
    batched = jax.vmap(compute)
    return PolicyFunction(
        compute=batched,
        inputs=inputs,
        observation=ports,
        action=action,
        state={name: leaf for name, leaf in state.items() if name in needed},
        graph=trace(batched, inputs),
    )


def _ports(
    space: gymnasium.Space, name: str, path: tuple[Any, ...] = ()
) -> Iterator[Port]:
    """The arrays of an element of a space."""
    members = spaces.members(space)
    for key, member in members.items():
        yield from _ports(member, f"{name}.{key}", (*path, key))
    if not members and not isinstance(
        space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple
    ):
        yield Port(name, path, space)
