"""Layers: parameters, gradients and activations of networks, layer by layer."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rlcli.evaluation.inspection.inspection_records import ActivationRecord, LayerRecord
from rlcli.evaluation.inspection.next_update import NextUpdate
from rlcli.networks.activations import find_activations
from rlcli.networks.inputs import Pair
from rlcli.types import ArrayTree, Network
from rlcli.updaters.learner import Learner
from rlcli.xla.tree_paths import leaves_by_path

SATURATED = 0.99  # |tanh| above it has a gradient below 2 % of the largest
_MOST_ROWS = 1_024  # of a batch, for activations


def describe_layers(update: NextUpdate) -> list[LayerRecord]:
    """The layers that an update changes, in its first gradient step of each."""
    found: dict[str, LayerRecord] = {}
    for record in update.gradient_steps:
        trees = [leaves_by_path(tree) for tree in record[:3]]
        layers: dict[str, list[str]] = {}
        for path in trees[0]:
            layers.setdefault(path.rpartition("/")[0] or path, []).append(path)
        for layer, paths in layers.items():
            norms = [_norm([tree[path] for path in paths]) for tree in trees]
            count = sum(trees[0][path].size for path in paths)
            name = layer.replace("\\/", "/")
            found.setdefault(name, LayerRecord(name, count, *norms))
    return [*found.values()]


def _norm(leaves: Sequence[np.ndarray]) -> float:
    """The Euclidean norm of all numbers of some arrays."""
    squares = (np.sum(np.square(np.asarray(leaf, np.float64))) for leaf in leaves)
    return float(np.sqrt(sum(squares)))


def describe_activations(update: NextUpdate) -> list[ActivationRecord]:
    """The activation functions of each network on the observations of the batch.

    Networks that read something else, such as the state of a learned model, are left
    out.
    """
    params = _params(update.progress.agent)
    rows = np.flatnonzero(update.weight.ravel() > 0)[:_MOST_ROWS]
    if len(rows) < 2:  # every unit has the same output for one row
        return []
    found = []
    for name, network in update.setup.networks.items():
        inputs = _inputs(network, update.batch, rows)
        if inputs is None:
            continue
        first = np.ones((1, len(rows)), bool)
        carry = network.initial(len(rows))

        def outputs(
            params: Any, inputs: ArrayTree, network=network, carry=carry, first=first
        ) -> Any:
            return network.apply(params, None, inputs, carry, first)[0]

        try:
            activations = find_activations(outputs, params, inputs)
        except (KeyError, ValueError, TypeError):  # a network of something else
            continue
        found += [
            record
            for each in activations
            if (record := _describe(name, each, len(rows))) is not None
        ]
    return found


def _params(agent: ArrayTree) -> dict[str, Any]:
    """The parameters of all learners in the state of an agent, by group."""
    leaves = jax.tree.leaves(agent, is_leaf=lambda each: isinstance(each, Learner))
    found: dict[str, Any] = {}
    for each in leaves:
        if isinstance(each, Learner):
            found |= each.params
    return found


def _inputs(network: Network, batch: Any, rows: np.ndarray) -> ArrayTree | None:
    """The inputs `[1, N, ...]` of a network, if it reads what a batch has."""

    def flatten(leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape((1, -1, *leaf.shape[2:]))[:, rows]

    obs, action = jax.tree.map(flatten, (batch.obs, batch.action))
    if network.space is None:
        return None
    return (obs, action) if isinstance(network.space, Pair) else obs


def _describe(name: str, found: Any, rows: int) -> ActivationRecord | None:
    """Statistics of the outputs of an activation function; None without rows.

    The axis of the rows is the first of their number. Axes before it are members of an
    ensemble, and between it and the last one are places of an image.
    """
    output = np.asarray(found.output, np.float32)
    if rows not in output.shape[:-1]:
        return None
    axis = output.shape[:-1].index(rows)
    others = tuple(range(axis, output.ndim - 1))
    is_dead = np.ptp(output, axis=others) == 0  # the same output for every row
    is_tanh = found.function == "tanh"
    return ActivationRecord(
        function=name,
        layer=found.layer.replace("\\/", "/"),
        activation=found.function,
        units=int(is_dead.size),
        dead=float(np.mean(is_dead)),
        saturated=float(np.mean(np.abs(output) > SATURATED)) if is_tanh else None,
    )
