"""Signature: the metadata of an exported policy, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from rlcli.evaluation.export.policy_function import PolicyFunction, next_name
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.runs import provenance
from rlcli.spaces import collapse, to_plain

VERSION = 1
BATCH = "batch"


def describe_policy(policy: TrainedPolicy, function: PolicyFunction) -> dict[str, Any]:
    """The metadata that every exported file contains."""
    spaces = {
        port.name: port.space for port in (*function.observation, *function.action)
    }
    return {
        "format_version": VERSION,
        "rlcli": provenance.versions()["rlcli"],
        "environment": policy.recipe["environment"]["name"],
        "seed": policy.seed,
        "steps": policy.steps,
        "inputs": [
            {**_array(name, struct), **_space(spaces.get(name))}
            for name, struct in function.inputs.items()
        ],
        "outputs": [
            {**_array(name, value, batched=True), **_space(spaces.get(name))}
            for name, value in _outputs(function)
        ],
        "state": [
            {"input": name, "output": next_name(name), "initial": collapse(leaf)}
            for name, leaf in function.state.items()
        ],
        "recipe": policy.recipe,
    }


def _outputs(function: PolicyFunction) -> Iterator[tuple[str, Any]]:
    """The outputs, first the actions; their shapes have a batch axis."""
    names = [port.name for port in function.action]
    names += [next_name(name) for name in function.state]
    for name in names:
        yield name, function.graph.outputs[name]


def _array(name: str, value: Any, batched: bool = False) -> dict[str, Any]:
    shape = value.shape[1:] if batched else value.shape
    dtype = np.dtype(value.dtype).name
    return {"name": name, "shape": [BATCH, *shape], "dtype": dtype}


def _space(space: gymnasium.Space | None) -> Mapping[str, Any]:
    """The entry `space` of an array of an observation or an action."""
    return {} if space is None else {"space": to_plain(space)}
