"""Operators: JAX primitives in NumPy and ONNX, for both writers."""

import string
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlcli.errors import RlcliError
from rlcli.evaluation.export.graph import BATCH, LOOPS, Graph, Operation, read_shape


class Operator(NamedTuple):
    """A primitive as a NumPy expression, and the type of its ONNX node."""

    numpy: str
    onnx: str  # "": composed of several nodes, or not available


ELEMENTWISE: Mapping[str, Operator] = {
    "abs": Operator("np.abs({0})", "Abs"),
    "acos": Operator("np.arccos({0})", "Acos"),
    "acosh": Operator("np.arccosh({0})", "Acosh"),
    "add": Operator("{0} + {1}", "Add"),
    "and": Operator("{0} & {1}", "And"),
    "asin": Operator("np.arcsin({0})", "Asin"),
    "asinh": Operator("np.arcsinh({0})", "Asinh"),
    "atan": Operator("np.arctan({0})", "Atan"),
    "atan2": Operator("np.arctan2({0}, {1})", ""),
    "atanh": Operator("np.arctanh({0})", "Atanh"),
    "cbrt": Operator("np.cbrt({0})", ""),
    "ceil": Operator("np.ceil({0})", "Ceil"),
    "clamp": Operator("np.minimum(np.maximum({1}, {0}), {2})", ""),
    "cos": Operator("np.cos({0})", "Cos"),
    "cosh": Operator("np.cosh({0})", "Cosh"),
    "div": Operator("{0} / {1}", "Div"),
    "eq": Operator("{0} == {1}", "Equal"),
    "erf": Operator("_erf({0})", "Erf"),
    "exp": Operator("np.exp({0})", "Exp"),
    "exp2": Operator("np.exp2({0})", ""),
    "expm1": Operator("np.expm1({0})", ""),
    "floor": Operator("np.floor({0})", "Floor"),
    "ge": Operator("{0} >= {1}", "GreaterOrEqual"),
    "gt": Operator("{0} > {1}", "Greater"),
    "is_finite": Operator("np.isfinite({0})", ""),
    "le": Operator("{0} <= {1}", "LessOrEqual"),
    "log": Operator("np.log({0})", "Log"),
    "log1p": Operator("np.log1p({0})", ""),
    "logistic": Operator("0.5 * np.tanh(0.5 * {0}) + 0.5", "Sigmoid"),
    "lt": Operator("{0} < {1}", "Less"),
    "max": Operator("np.maximum({0}, {1})", "Max"),
    "min": Operator("np.minimum({0}, {1})", "Min"),
    "mul": Operator("{0} * {1}", "Mul"),
    "ne": Operator("{0} != {1}", ""),
    "neg": Operator("-{0}", "Neg"),
    "not": Operator("~{0}", "Not"),
    "or": Operator("{0} | {1}", "Or"),
    "pow": Operator("np.power({0}, {1})", "Pow"),
    "rem": Operator("np.fmod({0}, {1})", ""),
    "round": Operator("np.round({0})", "Round"),  # to even
    "rsqrt": Operator("1 / np.sqrt({0})", ""),
    "sign": Operator("np.sign({0})", "Sign"),
    "sin": Operator("np.sin({0})", "Sin"),
    "sinh": Operator("np.sinh({0})", "Sinh"),
    "sqrt": Operator("np.sqrt({0})", "Sqrt"),
    "sub": Operator("{0} - {1}", "Sub"),
    "tan": Operator("np.tan({0})", "Tan"),
    "tanh": Operator("np.tanh({0})", "Tanh"),
    "xor": Operator("{0} ^ {1}", "Xor"),
}
REDUCTIONS: Mapping[str, Operator] = {
    "reduce_and": Operator("np.all({0}, axis={axes})", "ReduceMin"),
    "reduce_max": Operator("np.max({0}, axis={axes})", "ReduceMax"),
    "reduce_min": Operator("np.min({0}, axis={axes})", "ReduceMin"),
    "reduce_or": Operator("np.any({0}, axis={axes})", "ReduceMax"),
    "reduce_prod": Operator("np.prod({0}, axis={axes}, dtype={0}.dtype)", "ReduceProd"),
    "reduce_sum": Operator("np.sum({0}, axis={axes}, dtype={0}.dtype)", "ReduceSum"),
}
_DTYPES = frozenset({"bool", "float32", "int8", "int16", "int32", "uint8", "uint32"})


def unsupported_error(format: str, what: str) -> RlcliError:
    """The error for a policy that a format cannot express."""
    return RlcliError(
        f"the policy cannot be exported as `{format}`: it computes {what}",
        "`--format stablehlo` exports every policy",
    )


def check_operations(graph: Graph, format: str, primitives: Collection[str]) -> None:
    """Refuses other primitives, some uses of them, and arrays of other dtypes."""
    names = {operation.primitive for operation in graph.operations}
    if loops := sorted(names & LOOPS):
        raise unsupported_error(
            format, f"a loop or branch, the JAX primitive `{loops[0]}`"
        )
    if unknown := sorted(names.difference(primitives)):
        raise unsupported_error(format, f"the JAX primitive `{unknown[0]}`")
    for operation in graph.operations:
        for value in (*operation.inputs, *operation.outputs):
            if str(value.dtype) not in _DTYPES:  # such as bfloat16
                raise unsupported_error(format, f"with arrays of {value.dtype}")
        is_supported, use = _USES.get(operation.primitive, (None, ""))
        if is_supported and not is_supported(operation):
            raise unsupported_error(format, use)


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


def _is_plain_convolution(operation: Operation) -> bool:
    params = operation.params
    is_grouped = {params["feature_group_count"], params["batch_group_count"]} != {1}
    is_transposed = {*params["lhs_dilation"]} - {1}
    is_cut = any(low < 0 or high < 0 for low, high in params["padding"])
    return not (is_grouped or is_transposed or is_cut)


def read_convolution(
    operation: Operation,
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """The strides, the padding as pairs, and the dilation of a convolution."""
    params = operation.params
    padding = [(int(low), int(high)) for low, high in params["padding"]]
    return [*params["window_strides"]], padding, [*params["rhs_dilation"]]


def _is_plain_take(operation: Operation) -> bool:
    """Whether a `gather` is of whole slices of one axis."""
    numbers = operation.params["dimension_numbers"]
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims:
        return False
    (axis,) = numbers.start_index_map
    sizes = [*read_shape(operation.params["slice_sizes"])]
    whole = [*operation.inputs[0].shape]
    del sizes[axis], whole[axis]
    return numbers.collapsed_slice_dims == (axis,) and sizes == whole


def read_take(operation: Operation) -> tuple[int, tuple[int, ...]]:
    """The axis of a `gather` of whole slices, and the order of the result's axes."""
    numbers = operation.params["dimension_numbers"]
    axis, count = int(numbers.start_index_map[0]), len(operation.inputs[1].shape) - 1
    return axis, _take_order([*map(int, numbers.offset_dims)], axis, count)


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


# Whether a use of a primitive is one that writers know, and what the others are.
_USES: Mapping[str, tuple[Callable[[Operation], bool], str]] = {
    "conv_general_dilated": (
        _is_plain_convolution,
        "a grouped or transposed convolution",
    ),
    "gather": (_is_plain_take, "a `gather` of other than whole slices of one axis"),
    "pad": (
        lambda op: all(
            low >= 0 and high >= 0 and not interior
            for low, high, interior in op.params["padding_config"]
        ),
        "a negative or interior `pad`",
    ),
    "reduce_window_max": (
        lambda op: {*op.params["base_dilation"], *op.params["window_dilation"]} == {1},
        "a dilated pooling",
    ),
    "select_n": (
        lambda op: len(op.inputs) == 3 and op.inputs[0].dtype == np.bool_,
        "a selection among more than two arrays",
    ),
}
