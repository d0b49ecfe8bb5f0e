"""Signature: the metadata of an exported policy, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
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
            {
                **_array(name, function.graph.outputs[name], batched=True),
                **_space(spaces.get(name)),
            }
            for name in function.output_names
        ],
        "state": [
            {"input": name, "output": next_name(name), "initial": collapse(leaf)}
            for name, leaf in function.state.items()
        ],
        "recipe": policy.recipe,
    }


def _array(name: str, value: Any, batched: bool = False) -> dict[str, Any]:
    """The entry of an array; `batched`: its shape has the batch axis already."""
    shape = value.shape[1:] if batched else value.shape
    dtype = np.dtype(value.dtype).name
    return {"name": name, "shape": [BATCH, *shape], "dtype": dtype}


def _space(space: gymnasium.Space | None) -> Mapping[str, Any]:
    """The entry `space` of an array of an observation or an action."""
    return {} if space is None else {"space": to_plain(space)}
