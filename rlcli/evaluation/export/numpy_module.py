"""NumPy module: a policy as a Python file, with its arrays in an `.npz` beside it."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.evaluation.export.formats import ARRAYS_SUFFIX
from rlcli.evaluation.export.numpy_code import NumpyCode, write_code
from rlcli.evaluation.export.policy_function import (
    FIRST,
    PolicyFunction,
    Port,
    next_name,
)
from rlcli.quoting import quote_python

_MODULE = '''"""The greedy policy of a run, exported by rlcli.

Requires NumPy only, and `{arrays}` in the same folder.

    import {module} as policy

    action, state = policy.act(observation)
    action, state = policy.act(observation, state)

An observation may be single or have any leading batch axes.{statefulness}
"""

import json
import math
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

METADATA = json.loads(r"""
{metadata}
""")
with np.load(Path(__file__).with_suffix("{suffix}"), allow_pickle=False) as _file:
    arrays = dict(_file)


def act(observation, state=None, first=None):
    """Returns the action and the next state.

    `state` is that of the previous call, None before the first observation. `first`
    marks observations that begin an episode, where `state` is not new.
    """
    leaves = [
        _read(leaf, entry)
        for leaf, entry in zip({leaves}, METADATA["inputs"])
    ]
    batch_shape = leaves[0][1]
    batch = math.prod(batch_shape)
    rows = [leaf.reshape(batch, *leaf.shape[len(shape):]) for leaf, shape in leaves]
    begins = np.full(batch, state is None)
    if first is not None:
        begins = begins | np.broadcast_to(first, batch_shape).reshape(batch)
    if state is None:
        state = initial_state(batch_shape)
    previous = [leaf.reshape(batch, *leaf.shape[len(batch_shape):]) for leaf in state]
    with np.errstate(all="ignore"):
        outputs, next_state = _compute(batch, rows, begins, previous)
    outputs, next_state = (
        [leaf.reshape(batch_shape + leaf.shape[1:]) for leaf in each]
        for each in (outputs, next_state)
    )
    outputs = [
        leaf[()] if entry["space"]["type"] == "Discrete" else leaf  # hashable
        for leaf, entry in zip(outputs, METADATA["outputs"])
    ]
    return {action}, tuple(next_state)


def initial_state(batch_shape=()):
    """The state before the first observation of a batch."""
    shapes = {{entry["name"]: entry for entry in METADATA["inputs"]}}
    result = []
    for entry in METADATA["state"]:
        array = shapes[entry["input"]]
        shape = (*batch_shape, *array["shape"][1:])
        initial = np.array(entry["initial"], array["dtype"])
        result.append(np.broadcast_to(initial, shape))
    return tuple(result)


def _read(leaf, entry):
    """An array of the observation in the dtype of the policy, and its batch shape."""
    leaf, shape = np.asarray(leaf), tuple(entry["shape"][1:])
    split = leaf.ndim - len(shape)
    if split < 0 or leaf.shape[split:] != shape:
        raise ValueError(
            f"expected `{{entry['name']}}` of shape {{shape}}, alone or with leading "
            f"batch axes, got shape {{leaf.shape}}"
        )
    return leaf.astype(entry["dtype"]), leaf.shape[:split]

{helpers}
def _compute(batch, observations, {first}, state):
    {observations} = observations
{state}{body}    return [{results}], [{next_state}]
'''
_STATEFUL = """

The policy has a state: pass what the previous call returned, and None, or `first=True`,
at the first observation of an episode."""


def write_files(
    function: PolicyFunction, metadata: Mapping[str, Any], file: Path
) -> dict[Path, bytes]:
    """The contents of the module and of the file with its arrays."""
    code = write_code(function.graph)
    arrays = io.BytesIO()
    np.savez_compressed(arrays, allow_pickle=False, **code.arrays)
    source = _write_module(function, metadata, file, code)
    return {file: source.encode(), file.with_suffix(ARRAYS_SUFFIX): arrays.getvalue()}


def _write_module(
    function: PolicyFunction, metadata: Mapping[str, Any], file: Path, code: NumpyCode
) -> str:
    names = dict(zip(function.graph.inputs, code.arguments, strict=True))
    observations = _assignment_targets(
        names[port.name] for port in function.observation
    )
    state = _assignment_targets(names[name] for name in function.state)
    # JSON has no three quotes in a row, which would end the literal.
    text = json.dumps(metadata, indent=1, allow_nan=False)
    return _MODULE.format(
        arrays=quote_python(file.with_suffix(ARRAYS_SUFFIX).name),
        module=file.stem if file.stem.isidentifier() else "policy",
        statefulness=_STATEFUL if function.state else "",
        metadata=text,
        suffix=ARRAYS_SUFFIX,
        leaves=f"[{', '.join(_access(port) for port in function.observation)}]",
        action=_literal(function.action),
        helpers=f"\n{code.helpers}\n" if code.helpers else "",
        first=names.get(FIRST, "first"),
        observations=observations,
        state=f"    {state} = state\n" if state else "",
        body=code.body,
        results=", ".join(code.results[port.name] for port in function.action),
        next_state=", ".join(code.results[next_name(name)] for name in function.state),
    )


def _assignment_targets(names: Any) -> str:
    """The left side of an assignment that unpacks a list."""
    return "".join(f"{name}, " for name in names).rstrip()


def _access(port: Port) -> str:
    return "observation" + "".join(f"[{key!r}]" for key in port.path)


def _literal(ports: Sequence[Port]) -> str:
    """The expression that joins the outputs to an action."""
    tree: dict[Any, Any] = {}
    for index, port in enumerate(ports):
        if not port.path:
            return "outputs[0]"
        node = tree
        for key in port.path[:-1]:
            node = node.setdefault(key, {})
        node[port.path[-1]] = f"outputs[{index}]"
    return _expression(tree)


def _expression(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    parts = {key: _expression(each) for key, each in tree.items()}
    if all(isinstance(key, int) for key in parts):  # the entries of a tuple
        return f"({''.join(f'{part}, ' for part in parts.values()).rstrip()})"
    return f"{{{', '.join(f'{key!r}: {part}' for key, part in parts.items())}}}"
