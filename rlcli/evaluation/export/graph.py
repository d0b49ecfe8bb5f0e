"""Graph: the operations of a function that JAX can trace, as a flat list.

Calls are inlined, constants are computed, and what no output needs is left out. The
first axis of inputs may have any size: `BATCH` in shapes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
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


class Graph(NamedTuple):
    """A function as operations in the order in which they can run."""

    inputs: Mapping[str, Value]
    operations: Sequence[Operation]
    outputs: Mapping[str, Value]
    constants: Mapping[str, np.ndarray]  # by the name of the value


def trace(
    function: Callable[[dict[str, Any]], dict[str, Any]],
    inputs: Mapping[str, jax.ShapeDtypeStruct],
) -> Graph:
    """Traces a function of a dict of arrays, `inputs`, which get a batch axis."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(add_batch(inputs))
    input_names, output_names = sorted(inputs), sorted(shapes)  # as JAX flattens dicts
    builder = _GraphBuilder()
    values = [
        Value(name, read_shape(variable.aval.shape), variable.aval.dtype)
        for name, variable in zip(input_names, closed.jaxpr.invars, strict=True)
    ]
    results = builder.inline(closed.jaxpr, closed.consts, values)
    operations = _needed_operations(builder.operations, [v.name for v in results])
    needed = [value for operation in operations for value in operation.inputs]
    return Graph(
        inputs=dict(zip(input_names, values, strict=True)),
        operations=operations,
        outputs=dict(zip(output_names, results, strict=True)),
        constants=builder.evaluate([*needed, *results]),
    )


def add_batch(
    inputs: Mapping[str, jax.ShapeDtypeStruct],
) -> dict[str, jax.ShapeDtypeStruct]:
    """The same arrays with a first axis of any size."""
    (batch,) = export.symbolic_shape("batch")
    return {
        name: jax.ShapeDtypeStruct((batch, *struct.shape), struct.dtype)
        for name, struct in inputs.items()
    }


def needed_inputs(graph: Graph, outputs: Collection[str]) -> set[str]:
    """The names of the inputs on which these outputs depend."""
    needed = {graph.outputs[name].name for name in outputs}
    for operation in _needed_operations(graph.operations, needed):
        needed |= {value.name for value in operation.inputs}
    return needed & graph.inputs.keys()


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


def _needed_operations(operations: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """The operations on which these values depend, in the same order."""
    names, needed = set(outputs), []
    for operation in reversed(operations):
        if any(value.name in names for value in operation.outputs):
            needed.append(operation)
            names |= {value.name for value in operation.inputs}
    return needed[::-1]


class _ConstantOperation(NamedTuple):
    """An operation on constants only: it runs once, during the export."""

    function: Callable[..., Sequence[Any]]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


class _GraphBuilder:
    """Collects operations; those on constants only are computed by `evaluate`."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._literals: dict[str, Any] = {}
        self._constant_operations: list[_ConstantOperation] = []
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
        wanted = {
            value.name
            for value in values
            if value.is_constant and isinstance(value.dtype, np.dtype)
        }
        operations = _needed_operations(self._constant_operations, wanted)

        def compute() -> dict[str, Any]:
            known = dict(self._literals)
            for operation in operations:
                results = operation.function(*(known[v.name] for v in operation.inputs))
                names = (value.name for value in operation.outputs)
                known |= zip(names, results, strict=True)
            return {name: known[name] for name in wanted}

        with jax.numpy_dtype_promotion("standard"):
            return {name: np.asarray(x) for name, x in jax.jit(compute)().items()}

    def _add(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """Adds one equation; returns its outputs."""
        primitive, params = equation.primitive.name, equation.params
        avals = [variable.aval for variable in equation.outvars]
        if primitive in _IDENTITIES:
            return inputs
        if primitive in _RESHAPES:
            return [self._reshape(inputs[0], read_shape(avals[0].shape))]
        if primitive == "stack":
            return [
                self._stack(inputs, int(params["axis"]), read_shape(avals[0].shape))
            ]
        if primitive == "split":
            return self._split(inputs[0], params["sizes"], int(params["axis"]))
        if primitive == "square":
            return self._append("mul", [inputs[0]] * 2, avals, {}, _square)
        if primitive == "scan" and params["length"] in range(_MAX_UNROLLED + 1):
            return self._unroll(params, inputs)
        inner = [params[name] for name in _INNER_JAXPRS if name in params]
        if inner and primitive not in LOOPS:
            is_closed = hasattr(inner[0], "consts")
            jaxpr = inner[0].jaxpr if is_closed else inner[0]
            return self.inline(jaxpr, inner[0].consts if is_closed else (), inputs)

        def bind(*arrays: Any) -> Sequence[Any]:
            result = equation.primitive.bind(*arrays, **params)
            return result if equation.primitive.multiple_results else [result]

        return self._append(primitive, inputs, avals, params, bind)

    def _append(
        self,
        primitive: str,
        inputs: Sequence[Value],
        outputs: Sequence[Any],
        params: Mapping[str, Any],
        function: Callable[..., Sequence[Any]],
    ) -> list[Value]:
        """Appends an operation; `outputs` have its shapes, `function` computes it."""
        # `dim_as_value` has no inputs: it is the size of the batch.
        is_constant = primitive != "dim_as_value"
        is_constant &= all(value.is_constant for value in inputs)
        values = []
        for each in outputs:
            shape = read_shape(each.shape)
            values.append(Value(self._name(), shape, each.dtype, is_constant))
        is_constant &= all(BATCH not in value.shape for value in values)
        values = [value._replace(is_constant=is_constant) for value in values]
        if is_constant:
            operation = _ConstantOperation(function, tuple(inputs), tuple(values))
            self._constant_operations.append(operation)
        else:
            operation = Operation(primitive, tuple(inputs), tuple(values), params)
            self.operations.append(operation)
        return values

    def _unroll(self, params: Mapping[str, Any], inputs: list[Value]) -> list[Value]:
        """Adds the operations of every step of a scan."""
        consts, carries = _scan_sizes(params)
        jaxpr, length = params["jaxpr"], params["length"]
        carry, rows = inputs[consts : consts + carries], inputs[consts + carries :]
        steps = range(length)[:: -1 if params["reverse"] else 1]
        results: dict[int, list[Value]] = {}
        for step in steps:
            row = [self._row(value, step) for value in rows]
            outputs = self.inline(
                jaxpr.jaxpr, jaxpr.consts, [*inputs[:consts], *carry, *row]
            )
            carry, results[step] = outputs[:carries], outputs[carries:]
        columns = zip(*(results[step] for step in range(length)), strict=True)
        stacked = [
            self._stack(column, 0, (length, *column[0].shape)) for column in columns
        ]
        return [*carry, *stacked]

    def _row(self, value: Value, index: int) -> Value:
        """One entry of the first axis."""
        shape = value.shape[1:]
        if value.shape[0] > 1:
            value = self._slice(value, 0, index, index + 1)
        return self._reshape(value, shape)

    def _split(self, value: Value, sizes: Sequence[Any], axis: int) -> list[Value]:
        ends = np.cumsum([int(size) for size in sizes]).tolist()
        starts = [0, *ends[:-1]]
        return [
            self._slice(value, axis, start, end)
            for start, end in zip(starts, ends, strict=True)
        ]

    def _slice(self, value: Value, axis: int, start: int, end: int) -> Value:
        """The entries of one axis from `start` to `end`."""
        rank = len(value.shape)
        starts, limits = [0] * rank, list(value.shape)
        starts[axis], limits[axis] = start, end
        shape = list(value.shape)
        shape[axis] = end - start
        params = {"start_indices": starts, "limit_indices": limits, "strides": None}

        def compute(array: Any) -> list[Any]:
            return [jax.lax.slice_in_dim(array, start, end, axis=axis)]

        struct = jax.ShapeDtypeStruct(shape, value.dtype)
        return self._append("slice", [value], [struct], params, compute)[0]

    def _stack(self, values: Sequence[Value], axis: int, shape: Sequence[int]) -> Value:
        """Joins arrays along a new axis."""
        row = (*shape[:axis], 1, *shape[axis + 1 :])
        rows = [self._reshape(value, row) for value in values]
        if len(rows) == 1:
            return rows[0]

        def compute(*arrays: Any) -> list[Any]:
            return [jnp.concatenate(arrays, axis)]

        struct = jax.ShapeDtypeStruct(shape, values[0].dtype)
        params = {"dimension": axis}
        return self._append("concatenate", rows, [struct], params, compute)[0]

    def _reshape(self, value: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == value.shape:
            return value

        def compute(array: Any) -> list[Any]:
            return [jnp.reshape(array, shape)]

        struct = jax.ShapeDtypeStruct(shape, value.dtype)
        return self._append("reshape", [value], [struct], {}, compute)[0]

    def _literal(self, array: Any) -> Value:
        """The value of a number, or of an array that the function closes over."""
        array = array if isinstance(array, jax.Array) else np.asarray(array)
        value = Value(self._name(), array.shape, array.dtype, is_constant=True)
        self._literals[value.name] = array
        return value

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _square(array: Any, _: Any) -> list[Any]:
    return [array * array]


def _scan_sizes(params: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of constants and of carried values among the inputs of a scan."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carries, _ = params["ft_in"].unpack()  # since JAX 0.12
    return len(consts), len(carries)
