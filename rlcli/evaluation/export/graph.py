"""Graph: the operations of a function that JAX can trace, as a flat list.

Calls are inlined, constants are computed, and what no output needs is left out. The
first axis of inputs may have any size: `BATCH` in shapes.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export, lax
from jax.extend import core

from rlcli.errors import RlcliError

BATCH = -1
_MAX_UNROLLED = 16  # steps of a scan
# Primitives whose outputs are their inputs.
_IDENTITIES = frozenset({"copy", "copy_p", "optimization_barrier", "stop_gradient"})
_RESHAPES = frozenset({"expand_dims", "reshape", "squeeze"})
_INNER_JAXPRS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
LOOPS = frozenset({"cond", "scan", "while"})  # they have inner jaxprs, and are no calls


class Value(NamedTuple):
    """An array: an input, the result of an operation, or a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: Any  # of NumPy; or of JAX's keys, which only constants have
    is_constant: bool = False


class Operation(NamedTuple):
    """A JAX primitive, applied to values."""

    primitive: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    params: Mapping[str, Any]
    compute: Callable[..., Sequence[Any]]  # the outputs, of JAX arrays


class Graph(NamedTuple):
    """A function as operations in the order in which they can run."""

    inputs: Mapping[str, Value]
    operations: Sequence[Operation]
    outputs: Mapping[str, Value]
    constants: Mapping[str, np.ndarray]  # by the name of the value


def trace(
    function: Callable[[dict[str, Any]], dict[str, Any]],
    inputs: Mapping[str, Any],
) -> Graph:
    """Traces a function of a dict of arrays like `inputs`, which get a batch axis."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(add_batch(inputs))
    input_names, output_names = sorted(inputs), sorted(shapes)  # as JAX flattens dicts
    builder = _GraphBuilder()
    values = [
        Value(name, read_shape(variable.aval.shape), variable.aval.dtype)
        for name, variable in zip(input_names, closed.jaxpr.invars, strict=True)
    ]
    results = builder.inline(closed.jaxpr, closed.consts, values)
    operations = [
        operation
        for operation in _needed_operations(builder.operations, results)
        if not operation.outputs[0].is_constant
    ]
    needed = [value for operation in operations for value in operation.inputs]
    return Graph(
        inputs=dict(zip(input_names, values, strict=True)),
        operations=operations,
        outputs=dict(zip(output_names, results, strict=True)),
        constants=builder.evaluate([*needed, *results]),
    )


def add_batch(inputs: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of arrays with a first axis of any size."""
    (batch,) = export.symbolic_shape("batch")
    return {
        name: jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype)
        for name, leaf in inputs.items()
    }


def needed_inputs(graph: Graph, outputs: Collection[str]) -> set[str]:
    """The names of the inputs on which these outputs depend."""
    needed = [graph.outputs[name] for name in outputs]
    for operation in _needed_operations(graph.operations, needed):
        needed += operation.inputs
    return {value.name for value in needed} & graph.inputs.keys()


def read_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """A shape as integers, with `BATCH` for the axis of any size."""
    sizes = []
    for size in shape:
        if not isinstance(size, int | np.integer) and str(size) != "batch":
            raise RlcliError(
                f"the policy computes an array whose size is {size}",
                "export it as `stablehlo`, or change its network",
            )
        sizes.append(int(size) if isinstance(size, int | np.integer) else BATCH)
    return tuple(sizes)


def _needed_operations(
    operations: Sequence[Operation], outputs: Iterable[Value]
) -> list[Operation]:
    """The operations on which these values depend, in the same order."""
    names, needed = {value.name for value in outputs}, []
    for operation in reversed(operations):
        if any(value.name in names for value in operation.outputs):
            needed.append(operation)
            names |= {value.name for value in operation.inputs}
    return needed[::-1]


def _split(array: Any, *, sizes: Sequence[Any], axis: int) -> list[Any]:
    ends = np.cumsum([int(size) for size in sizes]).tolist()
    pairs = zip([0, *ends[:-1]], ends, strict=True)
    return [lax.slice_in_dim(array, *pair, axis=axis) for pair in pairs]


def _stack(*arrays: Any, axis: int) -> Any:
    rows = [lax.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in arrays]
    return lax.concatenate(rows, axis)


def _convolve(image: Any, kernel: Any, *, dimension_numbers: Any, **params: Any) -> Any:
    """A convolution of images `[N, *space, C]` with a kernel `[*window, C, O]`."""
    (batch, channel, *space), window, output = dimension_numbers
    image = lax.transpose(image, (batch, *space, channel))
    kernel = lax.transpose(kernel, (*window[2:], window[1], window[0]))
    params |= {"dimension_numbers": _last_channels(len(space))}
    result = lax.conv_general_dilated_p.bind(image, kernel, **params)
    order = (output[0], *output[2:], output[1])
    return lax.transpose(result, [order.index(axis) for axis in range(len(order))])


def _last_channels(n: int) -> lax.ConvDimensionNumbers:
    """The order of axes that writers know, with `n` axes of space."""
    array = (0, n + 1, *range(1, n + 1))
    return lax.ConvDimensionNumbers(array, (n + 1, n, *range(n)), array)


def _expand(array: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    """A `broadcast_in_dim` as one from the last axes."""
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, array.shape, strict=True):
        sizes[axis] = size
    return lax.broadcast_in_dim(lax.reshape(array, sizes), shape, range(len(shape)))


def _unroll(*inputs: Any, length: int, reverse: bool, **params: Any) -> list[Any]:
    """Every step of a scan."""
    consts, carries = _scan_sizes(params)
    carry, rows = inputs[consts : consts + carries], inputs[consts + carries :]
    run_step, results = core.jaxpr_as_fun(params["jaxpr"]), {}
    for step in range(length)[:: -1 if reverse else 1]:
        # A slice of the only step would be an operation that changes nothing.
        several = (lax.slice_in_dim(x, step, step + 1) for x in rows)
        row = [lax.squeeze(x, [0]) for x in (several if length > 1 else rows)]
        outputs = run_step(*inputs[:consts], *carry, *row)
        carry, results[step] = outputs[:carries], outputs[carries:]
    columns = zip(*(results[step] for step in range(length)), strict=True)
    return [*carry, *(_stack(*column, axis=0) for column in columns)]


def _has_other_axes(params: Mapping[str, Any]) -> bool:
    """Whether a `broadcast_in_dim` is not from the last axes, as in NumPy."""
    axes, rank = [*params["broadcast_dimensions"]], len(params["shape"])
    return axes != [*range(rank - len(axes), rank)]


class _Composition(NamedTuple):
    """A primitive, as a function of its inputs and params, that consists of others."""

    function: Callable[..., Any]
    applies: Callable[[Mapping[str, Any]], bool] = lambda params: True  # to its params


_COMPOSED: Mapping[str, _Composition] = {
    "broadcast_in_dim": _Composition(_expand, _has_other_axes),
    "conv_general_dilated": _Composition(
        _convolve,
        lambda params: (
            params["dimension_numbers"] != _last_channels(len(params["window_strides"]))
        ),
    ),
    "round": _Composition(
        lambda x, **_: lax.sign(x) * lax.floor(lax.abs(x) + np.array(0.5, x.dtype)),
        lambda params: params["rounding_method"] != lax.RoundingMethod.TO_NEAREST_EVEN,
    ),
    "scan": _Composition(_unroll, lambda params: params["length"] <= _MAX_UNROLLED),
    "split": _Composition(_split),
    "square": _Composition(lambda array: array * array),
    "stack": _Composition(_stack),
}


class _GraphBuilder:
    """Collects operations; those on constants only are computed by `evaluate`."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._literals: dict[str, Any] = {}
        self._count = 0

    def inline(
        self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Value]
    ) -> list[Value]:
        """Adds the operations of a jaxpr, and returns its outputs."""
        values = dict(zip(jaxpr.invars, inputs, strict=True))
        values |= zip(jaxpr.constvars, map(self._literal, constants), strict=True)

        def read(variable: Any) -> Value:
            if isinstance(variable, core.Literal):
                aval: Any = variable.aval
                return self._literal(np.asarray(variable.val, aval.dtype))
            return values[variable]

        for equation in jaxpr.eqns:
            outputs = self._add(equation, [*map(read, equation.invars)])
            values |= zip(equation.outvars, outputs, strict=True)
        return [*map(read, jaxpr.outvars)]

    def evaluate(self, values: Iterable[Value]) -> dict[str, np.ndarray]:
        """Computes the constants among these values, by name."""
        wanted = [
            value
            for value in values
            if value.is_constant and isinstance(value.dtype, np.dtype)
        ]
        operations = _needed_operations(self.operations, wanted)

        def compute() -> dict[str, Any]:
            known = dict(self._literals)
            for operation in operations:
                results = operation.compute(*(known[v.name] for v in operation.inputs))
                names = (value.name for value in operation.outputs)
                known |= zip(names, results, strict=True)
            return {value.name: known[value.name] for value in wanted}

        with jax.numpy_dtype_promotion("standard"):
            return {name: np.asarray(x) for name, x in jax.jit(compute)().items()}

    def _add(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """Adds one equation; returns its outputs."""
        primitive, params = equation.primitive.name, equation.params
        if primitive in _IDENTITIES:
            return inputs
        composition = _COMPOSED.get(primitive)
        if composition and composition.applies(params):
            compose = functools.partial(composition.function, **params)
            closed = jax.make_jaxpr(compose)(*(each.aval for each in equation.invars))
            return self.inline(closed.jaxpr, closed.consts, inputs)
        inner = [params[name] for name in _INNER_JAXPRS if name in params]
        if inner and primitive not in LOOPS:
            is_closed = hasattr(inner[0], "consts")
            jaxpr = inner[0].jaxpr if is_closed else inner[0]
            return self.inline(jaxpr, inner[0].consts if is_closed else (), inputs)
        shapes = [read_shape(variable.aval.shape) for variable in equation.outvars]
        if primitive in _RESHAPES:
            primitive = "reshape"
            if shapes[0] == inputs[0].shape:
                return inputs
        # `dim_as_value` has no inputs: it is the size of the batch.
        is_constant = primitive != "dim_as_value" and not any(
            BATCH in x for x in shapes
        )
        is_constant &= all(value.is_constant for value in inputs)
        outputs = [
            Value(self._name(), shape, variable.aval.dtype, is_constant)
            for shape, variable in zip(shapes, equation.outvars, strict=True)
        ]

        def compute(*arrays: Any) -> Sequence[Any]:
            result = equation.primitive.bind(*arrays, **params)
            return result if equation.primitive.multiple_results else [result]

        self.operations.append(
            Operation(primitive, tuple(inputs), tuple(outputs), params, compute)
        )
        return outputs

    def _literal(self, array: Any) -> Value:
        """The value of a number, or of an array that the function closes over."""
        array = array if isinstance(array, jax.Array) else np.asarray(array)
        value = Value(self._name(), array.shape, array.dtype, is_constant=True)
        self._literals[value.name] = array
        return value

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _scan_sizes(params: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of constants and of carried values among the inputs of a scan."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carries, _ = params["ft_in"].unpack()  # since JAX 0.12
    return len(consts), len(carries)
