"""ONNX: a graph as an ONNX model, with the policy's metadata."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.evaluation.export import operators
from rlcli.evaluation.export.graph import BATCH, Graph, Operation, Value, read_shape
from rlcli.evaluation.export.policy_function import PolicyFunction
from rlcli.registry.libraries import import_library

_BATCH_NAME = "batch"


class ModelBuilder:
    """Collects the nodes and constants of a model."""

    def __init__(self, onnx: Any, graph: Graph) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._onnx = onnx
        self._graph = graph
        self._constants: dict[Any, str] = {}
        self._batch_size = ""

    def read(self, value: Value) -> str:
        """The name of a value; adds it if it is a constant."""
        if value.name in self._graph.constants:
            return self.constant(self._graph.constants[value.name], value.name)
        return value.name

    def node(self, kind: str, inputs: Sequence[str], name: str = "", **options) -> str:
        """Adds a node and returns the name of its output."""
        name = name or f"n{len(self.nodes)}"
        make = self._onnx.helper.make_node
        self.nodes.append(make(kind, list(inputs), [name], **options))
        return name

    def constant(self, array: Any, name: str = "", dtype: Any = None) -> str:
        """The name of a constant, stored once."""
        array = np.asarray(array, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name or f"c{len(self._constants)}"
            tensor = self._onnx.numpy_helper.from_array(array, self._constants[key])
            self.initializers.append(tensor)
        return self._constants[key]

    def like(self, number: float, value: Value) -> str:
        """A number in the dtype of a value."""
        return self.constant(number, dtype=value.dtype)

    def sizes(self, shape: Sequence[int]) -> str:
        """A shape as a tensor, with the size of the batch."""
        parts, known = [], []
        for size in shape:
            if size != BATCH:
                known.append(size)
                continue
            parts += [self.integers(known)] if known else []
            parts, known = [*parts, self._batch()], []
        parts += [self.integers(known)] if known or not parts else []
        return self.node("Concat", parts, axis=0) if len(parts) > 1 else parts[0]

    def integers(self, numbers: Any) -> str:
        """A constant of int64, such as axes."""
        return self.constant(numbers, dtype=np.int64)

    def reshape(self, source: str, shape: Sequence[int]) -> str:
        """A `Reshape`, where −1 is the size that remains."""
        return self.node("Reshape", [source, self.integers(shape)])

    def cast(self, source: str, dtype: Any) -> str:
        """A `Cast` to a dtype of NumPy."""
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.node("Cast", [source], to=kind)

    def describe(self, name: str, value: Value) -> Any:
        """An input or output of the model."""
        shape = [_BATCH_NAME if size == BATCH else size for size in value.shape]
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)

    def _batch(self) -> str:
        """The size of the batch, `[1]`."""
        if not self._batch_size:
            observation = next(iter(self._graph.inputs))
            self._batch_size = self.node("Shape", [observation], start=0, end=1)
        return self._batch_size


FORMAT = "onnx"
OPSET = 18
_IR_VERSION = 8  # of opset 18, so that older runtimes read the file
_END = np.iinfo(np.int64).max  # of a slice of all entries


def write_files(
    function: PolicyFunction, metadata: Mapping[str, Any], file: Path
) -> dict[Path, bytes]:
    """The contents of the model's file."""
    onnx = import_library("onnx", "onnx")
    model = make_model(function.graph, function.output_names)
    text = {"rlcli": json.dumps(metadata, allow_nan=False)}
    onnx.helper.set_model_props(model, text)
    onnx.checker.check_model(model)
    return {file: model.SerializeToString(deterministic=True)}


def make_model(graph: Graph, outputs: Sequence[str]) -> Any:
    """The `onnx.ModelProto` of a graph; refuses what ONNX has no operator for."""
    onnx = import_library("onnx", "onnx")
    operators.check_operations(graph, FORMAT, _WRITERS)
    builder = ModelBuilder(onnx, graph)
    for operation in graph.operations:
        inputs = [builder.read(value) for value in operation.inputs]
        result = _WRITERS[operation.primitive](builder, operation, inputs)
        builder.node("Identity", [result], operation.outputs[0].name)
    for name in outputs:
        builder.node("Identity", [builder.read(graph.outputs[name])], name)
    body = onnx.helper.make_graph(
        builder.nodes,
        "policy",
        [builder.describe(name, value) for name, value in graph.inputs.items()],
        [builder.describe(name, graph.outputs[name]) for name in outputs],
        builder.initializers,
    )
    return onnx.helper.make_model(
        body,
        producer_name="rlcli",
        ir_version=_IR_VERSION,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
    )


_Write = Callable[[ModelBuilder, Operation, Sequence[str]], str]


def _elementwise(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    dtype = op.inputs[0].dtype
    if op.primitive in ("and", "not", "or", "xor") and dtype != np.bool_:
        raise operators.unsupported_error(
            FORMAT, f"the JAX primitive `{op.primitive}` of {dtype}"
        )
    return b.node(operators.ELEMENTWISE[op.primitive].onnx, inputs)


def _log1p(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    """X log(u) / (u − 1) with u = 1 + x, exact where u is rounded (Kahan)."""
    one, x = b.like(1, op.inputs[0]), inputs[0]
    u = b.node("Add", [x, one])
    scaled = b.node("Mul", [b.node("Log", [u]), x])
    quotient = b.node("Div", [scaled, b.node("Sub", [u, one])])
    huge = b.node("IsInf", [u])
    exact = b.node("Where", [huge, u, quotient])
    return b.node("Where", [b.node("Equal", [u, one]), x, exact])


def _expm1(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    """2 tanh(x/2) / (1 − tanh(x/2)) near 0, where exp(x) − 1 loses digits."""
    value, x = op.inputs[0], inputs[0]
    one, half = b.like(1, value), b.like(0.5, value)
    tanh = b.node("Tanh", [b.node("Mul", [x, half])])
    double = b.node("Add", [tanh, tanh])
    near = b.node("Div", [double, b.node("Sub", [one, tanh])])
    far = b.node("Sub", [b.node("Exp", [x]), one])
    is_near = b.node("Less", [b.node("Abs", [x]), one])
    return b.node("Where", [is_near, near, far])


def _reduce(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    kind = operators.REDUCTIONS[op.primitive].onnx
    axes = b.integers([int(axis) for axis in op.params["axes"]])
    if op.outputs[0].dtype != np.bool_:
        return b.node(kind, [inputs[0], axes], keepdims=0)
    numbers = b.cast(inputs[0], np.int32)
    return b.cast(b.node(kind, [numbers, axes], keepdims=0), np.bool_)


def _argument(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    (axis,) = op.params["axes"]
    kind = {"argmax": "ArgMax", "argmin": "ArgMin"}[op.primitive]
    source = inputs[0]
    if op.inputs[0].dtype == np.bool_:
        source = b.cast(source, np.int32)
    index = b.node(kind, [source], axis=int(axis), keepdims=0)
    return b.cast(index, op.outputs[0].dtype)


def _slice(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    starts, ends, steps = zip(*operators.read_slice(op), strict=True)
    limits = [_END if end is None else end for end in ends]
    axes = range(len(starts))
    words = [b.integers([*each]) for each in (starts, limits, axes, steps)]
    return b.node("Slice", [inputs[0], *words])


def _select(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    which, no, yes = inputs
    if op.inputs[1].dtype != np.bool_:
        return b.node("Where", [which, yes, no])
    both = b.node("And", [which, yes])  # some runtimes have no `Where` of bools
    return b.node("Or", [both, b.node("And", [b.node("Not", [which]), no])])


def _reverse(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    axes = [int(axis) for axis in op.params["dimensions"]]
    columns = ([-1] * len(axes), [-_END] * len(axes), axes, [-1] * len(axes))
    words = [b.integers(each) for each in columns]
    return b.node("Slice", [inputs[0], *words])


def _pad(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    lows, highs, _ = zip(*op.params["padding_config"], strict=True)
    widths = b.constant([*map(int, (*lows, *highs))], dtype=np.int64)
    return b.node("Pad", [inputs[0], widths, inputs[1]])


def _cumulate(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    axis = b.integers(op.params["axis"])
    return b.node("CumSum", [inputs[0], axis], reverse=int(op.params["reverse"]))


def _product(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    if operators.is_matmul(op):
        return b.node("MatMul", inputs)
    return b.node("Einsum", inputs, equation=operators.einsum_equation(op))


def _convolve(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    strides, padding, dilations = operators.read_convolution(op)
    n = len(strides)
    image = b.node("Transpose", [inputs[0]], perm=[0, n + 1, *range(1, n + 1)])
    kernel = b.node("Transpose", [inputs[1]], perm=[n + 1, n, *range(n)])
    lows, highs = zip(*padding, strict=True)
    options = {"strides": strides, "pads": [*lows, *highs], "dilations": dilations}
    result = b.node("Conv", [image, kernel], **options)
    return b.node("Transpose", [result], perm=[0, *range(2, n + 2), 1])


def _pool(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    """The axes of the window become the last; the others become the batch."""
    window, strides = (
        read_shape(op.params[name]) for name in ("window_dimensions", "window_strides")
    )
    rank = len(window)
    space = [axis for axis in range(rank) if window[axis] > 1 or strides[axis] > 1]
    rest = [axis for axis in range(rank) if axis not in space]
    order = [*rest, *space]
    source, target = op.inputs[0].shape, op.outputs[0].shape
    image = b.node("Transpose", [inputs[0]], perm=order)
    image = b.reshape(image, [-1, 1, *(source[axis] for axis in space)])
    pads = [op.params["padding"][axis] for axis in space]
    pooled = b.node(
        "MaxPool",
        [image],
        kernel_shape=[window[axis] for axis in space],
        strides=[strides[axis] for axis in space],
        pads=[int(pad[side]) for side in (0, 1) for pad in pads],
    )
    result = b.reshape(pooled, [target[axis] for axis in order])
    return b.node(
        "Transpose", [result], perm=[order.index(axis) for axis in range(rank)]
    )


def _take(b: ModelBuilder, op: Operation, inputs: Sequence[str]) -> str:
    axis, order = operators.read_take(op)
    rank = len(op.inputs[1].shape)
    indices = b.node("Squeeze", [inputs[1], b.integers([rank - 1])])
    indices = b.cast(indices, np.int64)
    last = op.inputs[0].shape[axis] - 1
    bounds = [b.integers(bound) for bound in (0, last)]
    indices = b.node("Min", [b.node("Max", [indices, bounds[0]]), bounds[1]])
    taken = b.node("Gather", [inputs[0], indices], axis=axis)
    return b.node("Transpose", [taken], perm=[*order])


_WRITERS: Mapping[str, _Write] = {
    **{name: _elementwise for name, each in operators.ELEMENTWISE.items() if each.onnx},
    **dict.fromkeys(operators.REDUCTIONS, _reduce),
    "argmax": _argument,
    "argmin": _argument,
    "broadcast_in_dim": lambda b, op, x: b.node(
        "Expand", [x[0], b.sizes(op.outputs[0].shape)]
    ),
    "clamp": lambda b, op, x: b.node("Min", [b.node("Max", [x[1], x[0]]), x[2]]),
    "concatenate": lambda b, op, x: b.node(
        "Concat", x, axis=int(op.params["dimension"])
    ),
    "conv_general_dilated": _convolve,
    "convert_element_type": lambda b, op, x: b.cast(x[0], op.outputs[0].dtype),
    "cumsum": _cumulate,
    "dot_general": _product,
    "exp2": lambda b, op, x: b.node(
        "Exp", [b.node("Mul", [x[0], b.like(math.log(2), op.inputs[0])])]
    ),
    "expm1": _expm1,
    "gather": _take,
    "integer_pow": lambda b, op, x: b.node(
        "Pow", [x[0], b.like(op.params["y"], op.inputs[0])]
    ),
    "is_finite": lambda b, op, x: b.node(
        "Not", [b.node("Or", [b.node("IsNaN", x), b.node("IsInf", x)])]
    ),
    "log1p": _log1p,
    "ne": lambda b, op, x: b.node("Not", [b.node("Equal", x)]),
    "pad": _pad,
    "reduce_window_max": _pool,
    "rem": lambda b, op, x: b.node("Mod", x, fmod=1),
    "reshape": lambda b, op, x: b.reshape(x[0], op.outputs[0].shape),
    "rev": _reverse,
    "rsqrt": lambda b, op, x: b.node("Reciprocal", [b.node("Sqrt", x)]),
    "select_n": _select,
    "slice": _slice,
    "transpose": lambda b, op, x: b.node(
        "Transpose", x, perm=[*map(int, op.params["permutation"])]
    ),
}
