"""NumPy module: a policy as a Python file, with its arrays in an `.npz` beside it."""

import io
import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcli.evaluation.export import operators, policy_function
from rlcli.evaluation.export.formats import ARRAYS_SUFFIX
from rlcli.evaluation.export.graph import BATCH, Graph, Operation, Value, read_shape
from rlcli.quoting import quote_python

FORMAT = "numpy"
# Functions that a program contains only if it calls them.
_HELPERS = {
    "_convolve": '''
def _convolve(x, kernel, strides, padding, dilation):
    """x [N, *spatial, C], kernel [*window, C, O] -> [N, *spatial, O]."""
    n = len(strides)
    x = np.pad(x, [(0, 0), *padding, (0, 0)])
    window = [d * (k - 1) + 1 for d, k in zip(dilation, kernel.shape)]
    x = sliding_window_view(x, window, tuple(range(1, n + 1)))
    steps = (*(slice(None, None, s) for s in strides), slice(None))
    x = x[(slice(None), *steps, *(slice(None, None, d) for d in dilation))]
    axes = [n + 1, *range(n + 2, 2 * n + 2)]
    return np.tensordot(x, kernel, (axes, [n, *range(n)]))
''',
    "_divide": '''
def _divide(x, y):
    """Division of integers, rounded towards zero."""
    return np.where((x < 0) == (y < 0), x // y, -(-x // y)).astype(x.dtype)
''',
    "_erf": """
def _erf(x):
    return np.vectorize(math.erf, otypes=[x.dtype])(x)
""",
    "_max_pool": """
def _max_pool(x, window, strides, padding):
    x = np.pad(x, padding, constant_values=-np.inf)
    x = sliding_window_view(x, window)[tuple(slice(None, None, s) for s in strides)]
    return np.max(x, axis=tuple(range(len(window), 2 * len(window))))
""",
}


class NumpyCode(NamedTuple):
    """The body of a function, the functions that it calls, and its arrays."""

    arguments: tuple[str, ...]  # in the order of the graph's inputs
    body: str
    results: Mapping[str, str]  # the expressions of the outputs, by name
    helpers: str
    arrays: Mapping[str, np.ndarray]  # read as `arrays["a0"]`


def write_code(graph: Graph) -> NumpyCode:
    """Writes a graph as NumPy code; refuses primitives that have no counterpart."""
    operators.check_operations(graph, FORMAT, _WRITERS)
    names, arrays = _identifiers(graph.inputs), dict[str, np.ndarray]()
    arguments = tuple(names.values())
    inputs = [value for operation in graph.operations for value in operation.inputs]
    used = dict.fromkeys(value.name for value in (*inputs, *graph.outputs.values()))
    for name in [each for each in used if each in graph.constants]:
        array = graph.constants[name]
        if array.shape == ():
            names[name] = _number(array)
        else:
            place = f"a{len(arrays)}"
            names[name], arrays[place] = f'arrays["{place}"]', array

    def read(value: Value) -> str:
        """The expression of a value."""
        return names.get(value.name, value.name)

    body = ""
    for operation in graph.operations:
        text = _WRITERS[operation.primitive](operation, [*map(read, operation.inputs)])
        body += f"    {operation.outputs[0].name} = {text}\n"
    helpers = [text for name, text in _HELPERS.items() if f"{name}(" in body]
    results = {name: read(value) for name, value in graph.outputs.items()}
    return NumpyCode(arguments, body, results, "\n".join(helpers), arrays)


def _identifiers(names: Mapping[str, Value]) -> dict[str, str]:
    """A Python name for each input."""
    result: dict[str, str] = {}
    for name in names:
        word = re.sub(r"\W", "_", name)
        while word in result.values() or keyword.iskeyword(word):
            word += "_"
        result[name] = word
    return result


def _number(array: np.ndarray) -> str:
    text = repr(array.item())
    if text in ("inf", "-inf", "nan"):
        text = f'"{text}"'
    name = "bool_" if array.dtype == np.bool_ else array.dtype.name
    return f"np.{name}({text})"


def _shape(shape: Sequence[int]) -> str:
    return _tuple("batch" if size == BATCH else str(size) for size in shape)


def _tuple(items: Any) -> str:
    words = [str(item) for item in items]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


_Write = Callable[[Operation, Sequence[str]], str]


def _elementwise(operation: Operation, inputs: Sequence[str]) -> str:
    if operation.primitive == "div" and operation.outputs[0].dtype.kind != "f":
        return f"_divide({inputs[0]}, {inputs[1]})"
    return operators.ELEMENTWISE[operation.primitive].numpy.format(*inputs)


def _reduce(operation: Operation, inputs: Sequence[str]) -> str:
    axes = _tuple(int(axis) for axis in operation.params["axes"])
    return operators.REDUCTIONS[operation.primitive].numpy.format(*inputs, axes=axes)


def _argument(operation: Operation, inputs: Sequence[str]) -> str:
    (axis,) = operation.params["axes"]
    dtype = operation.outputs[0].dtype
    return f"np.{operation.primitive}({inputs[0]}, axis={axis}).astype(np.{dtype})"


def _convert(operation: Operation, inputs: Sequence[str]) -> str:
    dtype = operation.outputs[0].dtype
    return f"{inputs[0]}.astype(np.{'bool_' if dtype == np.bool_ else dtype})"


def _slice(operation: Operation, inputs: Sequence[str]) -> str:
    words = [
        f"{start or ''}:{'' if end is None else end}{f':{step}' if step > 1 else ''}"
        for start, end, step in operators.read_slice(operation)
    ]
    return f"{inputs[0]}[{', '.join(words)}]"


def _pad(operation: Operation, inputs: Sequence[str]) -> str:
    widths = [(low, high) for low, high, _ in operation.params["padding_config"]]
    return f"np.pad({inputs[0]}, {widths}, constant_values={inputs[1]})"


def _cumulate(operation: Operation, inputs: Sequence[str]) -> str:
    axis = operation.params["axis"]
    source = inputs[0]
    if operation.params["reverse"]:
        source = f"np.flip({source}, {axis})"
    result = f"np.cumsum({source}, {axis}, dtype={inputs[0]}.dtype)"
    return f"np.flip({result}, {axis})" if operation.params["reverse"] else result


def _product(operation: Operation, inputs: Sequence[str]) -> str:
    if operators.is_matmul(operation):
        return f"{inputs[0]} @ {inputs[1]}"
    contracted, batch = operation.params["dimension_numbers"]
    if not any(map(len, batch)):
        axes = _tuple(_tuple(map(int, each)) for each in contracted)
        return f"np.tensordot({inputs[0]}, {inputs[1]}, {axes})"
    return (
        f'np.einsum("{operators.einsum_equation(operation)}", {inputs[0]}, {inputs[1]})'
    )


def _convolve(operation: Operation, inputs: Sequence[str]) -> str:
    words = [*inputs, *map(str, operators.read_convolution(operation))]
    return f"_convolve({', '.join(words)})"


def _pool(operation: Operation, inputs: Sequence[str]) -> str:
    params = operation.params
    words = (
        read_shape(params["window_dimensions"]),
        read_shape(params["window_strides"]),
        [tuple(map(int, pair)) for pair in params["padding"]],
    )
    return f"_max_pool({inputs[0]}, {', '.join(map(str, words))})"


def _take(operation: Operation, inputs: Sequence[str]) -> str:
    axis, order = operators.read_take(operation)
    indices = f"{inputs[1]}[..., 0]"
    return (
        f'np.transpose(np.take({inputs[0]}, {indices}, {axis}, mode="clip"), {order})'
    )


_WRITERS: Mapping[str, _Write] = {
    **dict.fromkeys(operators.ELEMENTWISE, _elementwise),
    **dict.fromkeys(operators.REDUCTIONS, _reduce),
    "argmax": _argument,
    "argmin": _argument,
    "broadcast_in_dim": lambda op, x: (
        f"np.broadcast_to({x[0]}, {_shape(op.outputs[0].shape)})"
    ),
    "concatenate": lambda op, x: (
        f"np.concatenate([{', '.join(x)}], {op.params['dimension']})"
    ),
    "conv_general_dilated": _convolve,
    "convert_element_type": _convert,
    "cumsum": _cumulate,
    "dot_general": _product,
    "gather": _take,
    "integer_pow": lambda op, x: f"{x[0]} ** {op.params['y']}",
    "pad": _pad,
    "reduce_window_max": _pool,
    "reshape": lambda op, x: f"{x[0]}.reshape({_shape(op.outputs[0].shape)})",
    "rev": lambda op, x: f"np.flip({x[0]}, {_tuple(op.params['dimensions'])})",
    "select_n": lambda op, x: f"np.where({x[0]}, {x[2]}, {x[1]})",
    "slice": _slice,
    "transpose": lambda op, x: (
        f"np.transpose({x[0]}, {_tuple(map(int, op.params['permutation']))})"
    ),
}

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
    function: policy_function.PolicyFunction, metadata: Mapping[str, Any], file: Path
) -> dict[Path, bytes]:
    """The contents of the module and of the file with its arrays."""
    code, arrays_file = write_code(function.graph), file.with_suffix(ARRAYS_SUFFIX)
    arrays = io.BytesIO()
    np.savez_compressed(arrays, allow_pickle=False, **code.arrays)
    names = dict(zip(function.graph.inputs, code.arguments, strict=True))
    state = _assignment_targets(names[name] for name in function.state)
    next_names = map(policy_function.next_name, function.state)
    source = _MODULE.format(
        arrays=quote_python(arrays_file.name),
        module=file.stem if file.stem.isidentifier() else "policy",
        statefulness=_STATEFUL if function.state else "",
        # JSON has no three quotes in a row, which would end the literal.
        metadata=json.dumps(metadata, indent=1, allow_nan=False),
        suffix=ARRAYS_SUFFIX,
        leaves=f"[{', '.join(_access(port) for port in function.observation)}]",
        action=_join_outputs(
            {port.path: f"outputs[{i}]" for i, port in enumerate(function.action)}
        ),
        helpers=f"\n{code.helpers}\n" if code.helpers else "",
        first=names.get(policy_function.FIRST, "first"),
        observations=_assignment_targets(names[p.name] for p in function.observation),
        state=f"    {state} = state\n" if state else "",
        body=code.body,
        results=", ".join(code.results[port.name] for port in function.action),
        next_state=", ".join(code.results[name] for name in next_names),
    )
    return {file: source.encode(), arrays_file: arrays.getvalue()}


def _assignment_targets(names: Any) -> str:
    """The left side of an assignment that unpacks a list."""
    return "".join(f"{name}, " for name in names).rstrip()


def _access(port: policy_function.Port) -> str:
    return "observation" + "".join(f"[{key!r}]" for key in port.path)


def _join_outputs(outputs: Mapping[tuple[Any, ...], str]) -> str:
    """The expression that joins outputs, by their paths, to an action."""
    if () in outputs:
        return outputs[()]
    members: dict[Any, dict[tuple[Any, ...], str]] = {}
    for (key, *path), text in outputs.items():
        members.setdefault(key, {})[tuple(path)] = text
    parts = {key: _join_outputs(each) for key, each in members.items()}
    if all(isinstance(key, int) for key in parts):  # the entries of a tuple
        return f"({''.join(f'{part}, ' for part in parts.values()).rstrip()})"
    return f"{{{', '.join(f'{key!r}: {part}' for key, part in parts.items())}}}"
