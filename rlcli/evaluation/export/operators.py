"""Operators: JAX primitives in NumPy and ONNX, for both writers."""

import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.evaluation.export.graph import BATCH, LOOPS, Graph, Operation, read_shape


class Elementwise(NamedTuple):
    """An elementwise primitive: a NumPy expression, and the type of an ONNX node."""

    numpy: str
    onnx: str  # "": composed of several nodes, or not available


ELEMENTWISE: Mapping[str, Elementwise] = {
    "abs": Elementwise("np.abs({0})", "Abs"),
    "acos": Elementwise("np.arccos({0})", "Acos"),
    "acosh": Elementwise("np.arccosh({0})", "Acosh"),
    "add": Elementwise("{0} + {1}", "Add"),
    "and": Elementwise("{0} & {1}", "And"),
    "asin": Elementwise("np.arcsin({0})", "Asin"),
    "asinh": Elementwise("np.arcsinh({0})", "Asinh"),
    "atan": Elementwise("np.arctan({0})", "Atan"),
    "atan2": Elementwise("np.arctan2({0}, {1})", ""),
    "atanh": Elementwise("np.arctanh({0})", "Atanh"),
    "cbrt": Elementwise("np.cbrt({0})", ""),
    "ceil": Elementwise("np.ceil({0})", "Ceil"),
    "clamp": Elementwise("np.minimum(np.maximum({1}, {0}), {2})", ""),
    "cos": Elementwise("np.cos({0})", "Cos"),
    "cosh": Elementwise("np.cosh({0})", "Cosh"),
    "div": Elementwise("{0} / {1}", "Div"),
    "eq": Elementwise("{0} == {1}", "Equal"),
    "erf": Elementwise("_erf({0})", "Erf"),
    "exp": Elementwise("np.exp({0})", "Exp"),
    "exp2": Elementwise("np.exp2({0})", ""),
    "expm1": Elementwise("np.expm1({0})", ""),
    "floor": Elementwise("np.floor({0})", "Floor"),
    "ge": Elementwise("{0} >= {1}", "GreaterOrEqual"),
    "gt": Elementwise("{0} > {1}", "Greater"),
    "is_finite": Elementwise("np.isfinite({0})", ""),
    "le": Elementwise("{0} <= {1}", "LessOrEqual"),
    "log": Elementwise("np.log({0})", "Log"),
    "log1p": Elementwise("np.log1p({0})", ""),
    "logistic": Elementwise("0.5 * np.tanh(0.5 * {0}) + 0.5", "Sigmoid"),
    "lt": Elementwise("{0} < {1}", "Less"),
    "max": Elementwise("np.maximum({0}, {1})", "Max"),
    "min": Elementwise("np.minimum({0}, {1})", "Min"),
    "mul": Elementwise("{0} * {1}", "Mul"),
    "ne": Elementwise("{0} != {1}", ""),
    "neg": Elementwise("-{0}", "Neg"),
    "not": Elementwise("~{0}", "Not"),
    "or": Elementwise("{0} | {1}", "Or"),
    "pow": Elementwise("np.power({0}, {1})", "Pow"),
    "rem": Elementwise("np.fmod({0}, {1})", ""),
    "rsqrt": Elementwise("1 / np.sqrt({0})", ""),
    "sign": Elementwise("np.sign({0})", "Sign"),
    "sin": Elementwise("np.sin({0})", "Sin"),
    "sinh": Elementwise("np.sinh({0})", "Sinh"),
    "sqrt": Elementwise("np.sqrt({0})", "Sqrt"),
    "sub": Elementwise("{0} - {1}", "Sub"),
    "tan": Elementwise("np.tan({0})", "Tan"),
    "tanh": Elementwise("np.tanh({0})", "Tanh"),
    "xor": Elementwise("{0} ^ {1}", "Xor"),
}
_DTYPES = frozenset({"bool", "float32", "int8", "int16", "int32", "uint8", "uint32"})


def unsupported_error(format: str, what: str) -> RlcliError:
    """The error for a policy that a format cannot express."""
    return RlcliError(
        f"the policy cannot be exported as `{format}`: it computes {what}",
        "`--format stablehlo` exports every policy",
    )


def check_operations(graph: Graph, format: str, primitives: Collection[str]) -> None:
    """Refuses other primitives, and arrays of other dtypes, such as bfloat16."""
    names = {operation.primitive for operation in graph.operations}
    if loops := sorted(names & LOOPS):
        raise unsupported_error(
            format, f"a loop or branch, the JAX primitive `{loops[0]}`"
        )
    if unknown := sorted(names.difference(primitives)):
        raise unsupported_error(format, f"the JAX primitive `{unknown[0]}`")
    for operation in graph.operations:
        for value in (*operation.inputs, *operation.outputs):
            if str(value.dtype) not in _DTYPES:
                raise unsupported_error(format, f"with arrays of {value.dtype}")


def is_matmul(operation: Operation) -> bool:
    """Whether a `dot_general` is `x @ w` with a matrix `w`."""
    (left, right), batch = operation.params["dimension_numbers"]
    ranks = [len(value.shape) for value in operation.inputs]
    is_last = tuple(left) == (ranks[0] - 1,) and tuple(right) == (0,)
    return is_last and ranks[1] == 2 and not any(map(len, batch))


def einsum_equation(operation: Operation) -> str:
    """A `dot_general` as the equation of an einsum."""
    contracted, batch = operation.params["dimension_numbers"]
    letters = iter(string.ascii_lowercase)
    left, right = ([""] * len(value.shape) for value in operation.inputs)
    for axes in (batch, contracted):
        for i, j in zip(*axes, strict=True):
            left[i] = right[j] = next(letters)
    shared = [left[i] for i in batch[0]]
    free = []
    for names in (left, right):
        for axis, name in enumerate(names):
            if not name:
                names[axis] = next(letters)
                free.append(names[axis])
    return f"{''.join(left)},{''.join(right)}->{''.join(shared + free)}"


class ConvolutionParameters(NamedTuple):
    """A `conv_general_dilated` with inputs `[N, *spatial, C]`.

    The kernel is `[*kernel, C, O]`, and the output `[N, *spatial, O]`; the permutations
    lead there from the inputs, and from there to the output.
    """

    input: tuple[int, ...]
    kernel: tuple[int, ...]
    output: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


def read_convolution(operation: Operation, format: str) -> ConvolutionParameters:
    """The parameters of a convolution; refuses groups and transposed ones."""
    params = operation.params
    numbers = params["dimension_numbers"]
    is_plain = (
        params["feature_group_count"] == params["batch_group_count"] == 1
        and {*params["lhs_dilation"]} <= {1}
        and all(low >= 0 and high >= 0 for low, high in params["padding"])
    )
    if not is_plain:
        raise unsupported_error(format, "a grouped or transposed convolution")
    (batch, channel, *space), kernel = numbers.lhs_spec, numbers.rhs_spec
    out_batch, out_channel, *out_space = numbers.out_spec
    order = (out_batch, *out_space, out_channel)
    return ConvolutionParameters(
        input=(batch, *space, channel),
        kernel=(*kernel[2:], kernel[1], kernel[0]),
        output=tuple(order.index(axis) for axis in range(len(order))),
        strides=tuple(params["window_strides"]),
        padding=tuple((int(low), int(high)) for low, high in params["padding"]),
        dilation=tuple(params["rhs_dilation"]),
    )


def read_take(operation: Operation, format: str) -> tuple[int, tuple[int, ...]]:
    """The axis of a `gather` of whole slices, and the order of the result's axes."""
    numbers, sizes = (
        operation.params["dimension_numbers"],
        [*read_shape(operation.params["slice_sizes"])],
    )
    array, indices = operation.inputs
    if len(numbers.start_index_map) == 1 and not numbers.operand_batching_dims:
        (axis,) = numbers.start_index_map
        whole = [size for i, size in enumerate(array.shape) if i != axis]
        if (
            numbers.collapsed_slice_dims == (axis,)
            and [size for i, size in enumerate(sizes) if i != axis] == whole
        ):
            slices = [int(position) for position in numbers.offset_dims]
            return int(axis), _take_order(slices, int(axis), len(indices.shape) - 1)
    raise unsupported_error(format, "a `gather` of other than whole slices of one axis")


def _take_order(offset_dims: Sequence[int], axis: int, count: int) -> tuple[int, ...]:
    """The order in which `gather` has the axes of the result of `np.take`."""
    order, slices, indices = [], 0, 0
    for position in range(len(offset_dims) + count):
        if position in offset_dims:
            order.append(slices if slices < axis else slices + count)
            slices += 1
        else:
            order.append(axis + indices)
            indices += 1
    return tuple(order)


def expanded_shape(operation: Operation) -> tuple[int, ...]:
    """The input's shape in a `broadcast_in_dim`, with axes of size 1 for the new ones.

    An input that broadcasts as it is keeps its shape.
    """
    (value, *_), (output, *_) = operation.inputs, operation.outputs
    axes = [int(axis) for axis in operation.params["broadcast_dimensions"]]
    rank = len(output.shape)
    if axes == [*range(rank - len(axes), rank)]:
        return value.shape
    shape = [1] * rank
    for axis, size in zip(axes, value.shape, strict=True):
        shape[axis] = size
    return tuple(shape)


def read_slice(operation: Operation) -> list[tuple[int, int | None, int]]:
    """Start, end and step of each axis of a `slice`; the end None for all entries."""
    params, shape = operation.params, operation.inputs[0].shape
    starts, limits = map(read_shape, (params["start_indices"], params["limit_indices"]))
    steps = params["strides"] or (1,) * len(shape)
    ends = [
        None if limit in (BATCH, size) else limit
        for limit, size in zip(limits, shape, strict=True)
    ]
    return [
        (start, end, int(step))
        for start, end, step in zip(starts, ends, steps, strict=True)
    ]


def check_window(params: Mapping[str, Any], format: str) -> None:
    """Refuses a pooling with dilation."""
    if {*params["base_dilation"], *params["window_dilation"]} != {1}:
        raise unsupported_error(format, "a dilated pooling")


def check_padding(params: Mapping[str, Any], format: str) -> None:
    """Refuses a `pad` that removes entries, or inserts some between others."""
    for low, high, interior in params["padding_config"]:
        if low < 0 or high < 0 or interior:
            raise unsupported_error(format, "a negative or interior `pad`")
