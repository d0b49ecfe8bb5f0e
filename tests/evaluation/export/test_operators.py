"""Each JAX primitive gives the same numbers in NumPy and in ONNX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rlcli.errors import RlcliError
from rlcli.evaluation.export import numpy_module, onnx_model
from rlcli.evaluation.export.graph import trace

X = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
TABLE = np.arange(24, dtype=np.float32).reshape(3, 8)
IMAGES = np.random.default_rng(1).normal(size=(5, 9, 8, 3)).astype(np.float32)
KERNEL = np.random.default_rng(2).normal(size=(3, 2, 3, 4)).astype(np.float32)
INTEGERS = np.array([[7, -7, 0], [3, -2, 9]], np.int32)
SMALL = np.array([[-1e-4, 1e-7, 0.0, 2e-3, -0.9, 3.0, 60.0]], np.float32)
UNIT = np.linspace(-0.9, 0.9, 6, dtype=np.float32)[None]
POSITIVE = np.abs(X) + np.float32(1.1)
MASK = X > 0


def convolve_channels_first(x):
    """The axes of image, kernel and output are in other orders than the writers'."""
    return lax.conv_general_dilated(
        jnp.moveaxis(x, -1, 1),
        KERNEL.transpose(3, 2, 0, 1),
        (2, 1),
        "VALID",
        dimension_numbers=("NCHW", "OIHW", "WNHC"),
    )


def convolve(strides=(1, 1), padding="VALID", dilation=(1, 1)):
    return lambda x: lax.conv_general_dilated(
        x,
        KERNEL,
        strides,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")


def cumulate(x):
    return jnp.cumsum(x, 1) + lax.cumsum(x, axis=2, reverse=True)


def scan(x):
    """Two steps of a recurrence over the last axis but one."""
    rows = jnp.moveaxis(lax.slice_in_dim(x, 0, 2, axis=1), 1, 0)
    return lax.scan(lambda c, r: (c + r, c * r), rows[0], rows)


CASES = {
    **{
        name: (getattr(jnp, name), X)
        for name in (
            *("abs", "sign", "floor", "ceil", "exp", "exp2", "tanh", "sin", "cos"),
            *("tan", "sinh", "cosh", "arctan", "arcsinh", "negative", "square"),
            *("round", "isfinite"),
        )
    },
    **{
        name: (getattr(jnp, name), POSITIVE)
        for name in ("log", "sqrt", "arccosh", "log1p", "expm1")
    },
    **{name: (getattr(jnp, name), UNIT) for name in ("arcsin", "arccos", "arctanh")},
    "logistic": (jax.nn.sigmoid, X),
    "erf": (jax.scipy.special.erf, X),
    "rsqrt": (lax.rsqrt, POSITIVE),
    "log1p_small": (jnp.log1p, SMALL),
    "expm1_small": (jnp.expm1, SMALL),
    "softplus": (jax.nn.softplus, 30 * X),
    "gelu": (jax.nn.gelu, X),
    "softmax": (jax.nn.log_softmax, X),
    "power": (lambda x: x**3 + jnp.power(jnp.abs(x), 1.5), X),
    "divide": (lambda x: x / (x * x + 1), X),
    "integers": (lambda x: lax.div(x, np.int32(2)) * 3 - 1, INTEGERS),
    "remainder": (lambda x: lax.rem(x, jnp.float32(0.3)), X),
    "clamp": (lambda x: lax.clamp(-0.5, x, 0.5), X),
    "compare": (lambda x: (x > 0.1) & ~(x >= 1) | (x < -1) ^ (x <= -2), X),
    "equal": (lambda x: (x == 0) | (x != x), X),
    "minimum": (lambda x: jnp.minimum(jnp.maximum(x, 0), 1), X),
    "select": (lambda x: jnp.where(x > 0, x, -2 * x), X),
    "select_bool": (lambda m: jnp.where(m, m[:, ::-1], ~m), MASK),
    "sums": (lambda x: (x.sum(1), x.max((1, 2)), x.min(2), x.prod(1), x.mean(2)), X),
    "sum_integers": (lambda x: (x.sum(1), x.max(1)), INTEGERS),
    "any": (lambda m: (m.any(1), m.all(2)), MASK),
    "argmax": (lambda x: (x.argmax(1), x.argmin(2)), X),
    "argmax_tie": (lambda m: m.argmax(1), MASK),
    "convert": (lambda x: (10 * x).astype(int).astype(bool), X),
    "reshape": (lambda x: x.reshape(x.shape[0], 3, 8)[:, None], X),
    "transpose": (lambda x: x.transpose(0, 2, 1), X),
    "broadcast": (lambda x: x + jnp.arange(4.0)[:, None] + jnp.zeros(x.shape), X),
    "concatenate": (lambda x: jnp.concatenate([x, -x], 2), X),
    "stack": (lambda x: jnp.stack([x, 2 * x], 1), X),
    "split": (lambda x: jnp.split(x, [1, 4], 2), X),
    "slice": (lambda x: lax.slice_in_dim(x, 1, 6, 2, axis=2), X),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=7.0), X),
    "flip": (lambda x: jnp.flip(x, (1, 2)), X),
    "cumsum": (cumulate, X),
    "matmul": (lambda x: x @ TABLE.reshape(6, 4), X),
    "tensordot": (lambda x: jnp.tensordot(x, TABLE.reshape(4, 6), ((1, 2), (0, 1))), X),
    "einsum": (lambda x: jnp.einsum("bij,bkj->bik", x, x), X),
    "take": (lambda x: jnp.asarray(TABLE)[:, x], np.array([[0, 3], [7, 7]], np.int32)),
    "take_rows": (lambda x: jnp.asarray(TABLE)[x], np.array([0, 2, 1], np.int32)),
    "convolution": (convolve(), IMAGES),
    "convolution_strided": (convolve((2, 1), "SAME", (1, 2)), IMAGES),
    "convolution_channels_first": (convolve_channels_first, IMAGES),
    "pool": (pool, IMAGES),
    "scan": (scan, X),
    "constants": (lambda x: x * (jnp.arange(6.0) ** 2).sum() + jnp.eye(4, 6), X),
}
# ONNX has no such operator.
NUMPY_ONLY = {
    "atan2": (lambda x: jnp.arctan2(x, 2.0), X),
    "cbrt": (jnp.cbrt, X),
    "bits": (lambda x: (x & 3) | (x ^ 1), INTEGERS),
}


def as_function(function):
    """A function of dicts, as exports trace it, of one that may return a tree."""
    return lambda inputs: {
        f"y{index}": leaf
        for index, leaf in enumerate(jax.tree.leaves(function(inputs["x"])))
    }


def trace_case(function, x):
    struct = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    return trace(as_function(function), {"x": struct})


def run_numpy(graph, x):
    code = numpy_module.write_code(graph)
    results = ", ".join(f"{name!r}: {text}" for name, text in code.results.items())
    source = (
        f"{code.helpers}\ndef compute(batch, x):\n{code.body}    return {{{results}}}"
    )
    window = np.lib.stride_tricks.sliding_window_view
    names = {"np": np, "math": __import__("math"), "arrays": dict(code.arrays)}
    names["sliding_window_view"] = window
    exec(source, names)
    with np.errstate(all="ignore"):
        return names["compute"](len(x), x)


def run_onnx(graph, x):
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_model.make_model(graph, [*graph.outputs])
    session = runtime.InferenceSession(model.SerializeToString())
    return dict(
        zip(graph.outputs, session.run([*graph.outputs], {"x": x}), strict=True)
    )


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        array = np.asarray(found[name])
        assert (array.shape, array.dtype) == (leaf.shape, leaf.dtype)
        np.testing.assert_allclose(array, leaf, rtol=2e-5, atol=2e-6)


@functools.cache
def expected_outputs():
    """What JAX computes for each case, in one program."""
    cases = CASES | NUMPY_ONLY

    @jax.jit
    def compute(inputs):
        return {
            name: as_function(function)({"x": inputs[name]})
            for name, (function, _) in cases.items()
        }

    return jax.device_get(compute({name: x for name, (_, x) in cases.items()}))


@functools.cache
def graph_of(name):
    return trace_case(*(CASES | NUMPY_ONLY)[name])


@pytest.mark.parametrize("name", CASES | NUMPY_ONLY)
def test_numpy_computes_what_jax_computes(name):
    found = run_numpy(graph_of(name), (CASES | NUMPY_ONLY)[name][1])
    check_equal(found, expected_outputs()[name])


@pytest.mark.parametrize("name", CASES)
def test_onnx_computes_what_jax_computes(name):
    check_equal(run_onnx(graph_of(name), CASES[name][1]), expected_outputs()[name])


@pytest.mark.parametrize("name", NUMPY_ONLY)
def test_what_onnx_lacks_is_refused_by_name(name):
    pytest.importorskip("onnx")
    graph = graph_of(name)
    with pytest.raises(RlcliError, match="the JAX primitive `"):
        onnx_model.make_model(graph, [*graph.outputs])


REFUSED = {
    "`sort`": lambda x: jnp.sort(x),
    "a loop or branch, the JAX primitive `while`": lambda x: lax.while_loop(
        lambda c: c.sum() < 9, lambda c: c + 1, x
    ),
    "a loop or branch, the JAX primitive `scan`": lambda x: lax.scan(
        lambda c, _: (c + 1, None), x, length=99
    ),
    "arrays of bfloat16": lambda x: x.astype(jnp.bfloat16) * 2,
    "a negative or interior `pad`": lambda x: lax.pad(
        x, np.float32(0), [(0, 0, 0), (-1, 0, 0), (0, 0, 0)]
    ),
    "a `gather` of other": lambda x: (
        lax.dynamic_slice_in_dim(jnp.asarray(TABLE), x[0, 0, 0].astype(int), 2, axis=1)
        + jnp.take_along_axis(x, x.astype(int), 1).sum()
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("write", ["numpy", "onnx"])
def test_what_cannot_be_expressed_is_refused_by_name(what, write):
    graph = trace_case(REFUSED[what], X)
    if write == "onnx":
        pytest.importorskip("onnx")
    with pytest.raises(RlcliError, match=f"cannot be exported as `{write}`"):
        if write == "onnx":
            onnx_model.make_model(graph, [*graph.outputs])
        else:
            numpy_module.write_code(graph)


def test_constants_are_computed_during_the_export():
    graph = trace_case(lambda x: x + jnp.sin(jnp.arange(6.0)) @ jnp.ones((6, 6)), X)
    assert not {"sin", "dot_general", "iota"} & {
        operation.primitive for operation in graph.operations
    }


def test_what_no_output_needs_is_left_out():
    graph = trace_case(lambda x: (jnp.sort(x), x + 1)[1], X)
    assert [operation.primitive for operation in graph.operations] == ["add"]
