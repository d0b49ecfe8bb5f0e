"""NumPy code: a graph as the source of a Python function, and its arrays."""

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcli.evaluation.export.graph import BATCH, Graph, Operation, Value, read_shape
from rlcli.evaluation.export.operators import (
    ELEMENTWISE,
    check_operations,
    check_padding,
    check_window,
    einsum_equation,
    expanded_shape,
    is_matmul,
    read_convolution,
    read_slice,
    read_take,
    unsupported_error,
)

FORMAT = "numpy"
_REDUCTIONS = {
    "reduce_and": "np.all({0}, axis={axes})",
    "reduce_max": "np.max({0}, axis={axes})",
    "reduce_min": "np.min({0}, axis={axes})",
    "reduce_or": "np.any({0}, axis={axes})",
    "reduce_prod": "np.prod({0}, axis={axes}, dtype={0}.dtype)",
    "reduce_sum": "np.sum({0}, axis={axes}, dtype={0}.dtype)",
}
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
    check_operations(graph, FORMAT, _WRITERS)
    writer = _CodeWriter(graph)
    body = "".join(f"    {writer.line(each)}\n" for each in graph.operations)
    results = {name: writer.read(value) for name, value in graph.outputs.items()}
    helpers = [text for name, text in _HELPERS.items() if f"{name}(" in body]
    return NumpyCode(
        arguments=tuple(writer.names[value.name] for value in graph.inputs.values()),
        body=body,
        results=results,
        helpers="\n".join(helpers),
        arrays=writer.arrays,
    )


class _CodeWriter:
    """Writes operations as assignments."""

    def __init__(self, graph: Graph) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.names = _identifiers(graph.inputs)
        self._constants = graph.constants

    def line(self, operation: Operation) -> str:
        """The assignment of an operation."""
        inputs = [self.read(value) for value in operation.inputs]
        (output,) = operation.outputs
        return f"{output.name} = {_WRITERS[operation.primitive](operation, inputs)}"

    def read(self, value: Value) -> str:
        """The expression of a value."""
        if value.name in self._constants and value.name not in self.names:
            self.names[value.name] = self._constant(self._constants[value.name])
        return self.names.get(value.name, value.name)

    def _constant(self, array: np.ndarray) -> str:
        if array.shape == ():
            return _number(array)
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return f'arrays["{name}"]'


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
    return ELEMENTWISE[operation.primitive].numpy.format(*inputs)


def _reduce(operation: Operation, inputs: Sequence[str]) -> str:
    template = _REDUCTIONS[operation.primitive]
    axes = _tuple(int(axis) for axis in operation.params["axes"])
    return template.format(inputs[0], axes=axes)


def _argument(operation: Operation, inputs: Sequence[str]) -> str:
    (axis,) = operation.params["axes"]
    dtype = operation.outputs[0].dtype
    return f"np.{operation.primitive}({inputs[0]}, axis={axis}).astype(np.{dtype})"


def _broadcast(operation: Operation, inputs: Sequence[str]) -> str:
    shape, (value,) = expanded_shape(operation), operation.inputs[:1]
    source = inputs[0]
    if shape != value.shape:
        source = f"{source}.reshape({_shape(shape)})"
    return f"np.broadcast_to({source}, {_shape(operation.outputs[0].shape)})"


def _convert(operation: Operation, inputs: Sequence[str]) -> str:
    dtype = operation.outputs[0].dtype
    return f"{inputs[0]}.astype(np.{'bool_' if dtype == np.bool_ else dtype})"


def _slice(operation: Operation, inputs: Sequence[str]) -> str:
    words = [
        f"{start or ''}:{'' if end is None else end}{f':{step}' if step > 1 else ''}"
        for start, end, step in read_slice(operation)
    ]
    return f"{inputs[0]}[{', '.join(words)}]"


def _select(operation: Operation, inputs: Sequence[str]) -> str:
    if len(inputs) != 3 or operation.inputs[0].dtype != np.bool_:
        raise unsupported_error(FORMAT, "a selection among more than two arrays")
    return f"np.where({inputs[0]}, {inputs[2]}, {inputs[1]})"


def _round(operation: Operation, inputs: Sequence[str]) -> str:
    if int(operation.params["rounding_method"]) == 1:  # to even
        return f"np.round({inputs[0]})"
    return f"np.sign({inputs[0]}) * np.floor(np.abs({inputs[0]}) + 0.5)"


def _pad(operation: Operation, inputs: Sequence[str]) -> str:
    check_padding(operation.params, FORMAT)
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
    if is_matmul(operation):
        return f"{inputs[0]} @ {inputs[1]}"
    contracted, batch = operation.params["dimension_numbers"]
    if not any(map(len, batch)):
        axes = _tuple(_tuple(map(int, each)) for each in contracted)
        return f"np.tensordot({inputs[0]}, {inputs[1]}, {axes})"
    return f'np.einsum("{einsum_equation(operation)}", {inputs[0]}, {inputs[1]})'


def _convolve(operation: Operation, inputs: Sequence[str]) -> str:
    conv = read_convolution(operation, FORMAT)
    image, kernel = (
        f"np.transpose({source}, {axes})"
        for source, axes in zip(inputs, (conv.input, conv.kernel), strict=True)
    )
    words = ", ".join(map(str, (conv.strides, conv.padding, conv.dilation)))
    return f"np.transpose(_convolve({image}, {kernel}, {words}), {conv.output})"


def _pool(operation: Operation, inputs: Sequence[str]) -> str:
    check_window(operation.params, FORMAT)
    params = operation.params
    words = (
        read_shape(params["window_dimensions"]),
        read_shape(params["window_strides"]),
        [tuple(map(int, pair)) for pair in params["padding"]],
    )
    return f"_max_pool({inputs[0]}, {', '.join(map(str, words))})"


def _take(operation: Operation, inputs: Sequence[str]) -> str:
    axis, order = read_take(operation, FORMAT)
    indices = f"{inputs[1]}[..., 0]"
    return (
        f'np.transpose(np.take({inputs[0]}, {indices}, {axis}, mode="clip"), {order})'
    )


_WRITERS: Mapping[str, _Write] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "argmax": _argument,
    "argmin": _argument,
    "broadcast_in_dim": _broadcast,
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
    "round": _round,
    "select_n": _select,
    "slice": _slice,
    "transpose": lambda op, x: (
        f"np.transpose({x[0]}, {_tuple(map(int, op.params['permutation']))})"
    ),
}
