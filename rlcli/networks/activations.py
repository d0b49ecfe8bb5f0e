"""Activations and layers: what is within a network, found in its program.

The outputs of the activation functions of a user's own forward pass are among them;
those within the loop of a recurrent core are not.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from rlcli.types import ArrayTree, Params
from rlcli.xla.debugging import locate
from rlcli.xla.tree_paths import leaves_by_path

# Functions of `jax.nn` that are called by their names within a program.
_NAMED = {"relu", "relu6", "elu", "selu", "celu", "silu", "leaky_relu", "softplus"}
_CALLS = {"jit", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint"}
# They change the form of a parameter, so that their result is still that parameter.
_FORMS = {"convert_element_type", "reshape", "broadcast_in_dim", "transpose", "copy"}


class Activation(NamedTuple):
    """The outputs of an activation function."""

    layer: str  # the tree path of the parameters that were used last before
    function: str  # such as `relu` or `tanh`
    output: np.ndarray


def find_activations(
    function: Callable[..., Any], params: Params, *inputs: ArrayTree
) -> list[Activation]:
    """The outputs of the activation functions in `function(params, *inputs)`."""
    program = jax.make_jaxpr(function)(params, *inputs)
    count = len(jax.tree.leaves(inputs))
    paths = [*leaves_by_path(params), *[""] * count]

    def run(*leaves: Any) -> list[Any]:
        walk = _Walk()
        walk.run(program.jaxpr, program.consts, leaves, paths)
        names[:] = walk.names
        return walk.outputs

    names: list[tuple[str, str]] = []
    outputs = jax.device_get(jax.jit(run)(*jax.tree.leaves((params, inputs))))
    found = zip(names, outputs, strict=True)
    return [Activation(*name, np.asarray(output)) for name, output in found]


class _Walk:
    """Evaluates a program, and keeps the outputs of activation functions."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.outputs: list[Any] = []
        self._layer = ""

    def run(
        self,
        jaxpr: Jaxpr,
        constants: Sequence[Any],
        arguments: Sequence[Any],
        paths: Sequence[str],
    ) -> list[Any]:
        """The results; `paths` are those of arguments that are parameters, or ""."""
        values: dict[Var, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values |= zip(jaxpr.invars, arguments, strict=True)
        path_of = dict(zip(jaxpr.invars, paths, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            operands = [*map(read, equation.invars)]
            own = [
                "" if isinstance(atom, Literal) else path_of.get(atom, "")
                for atom in equation.invars
            ]
            primitive, name = equation.primitive, _activation_name(equation, jaxpr)
            inner = _inner_program(equation) if not name else None
            if inner is not None:
                results = self.run(inner.jaxpr, inner.consts, operands, own)
            else:
                if primitive.name not in _FORMS and any(own):
                    self._layer = next(filter(None, own)).rpartition("/")[0]
                bound = primitive.get_bind_params(equation.params)
                # Of JAX before 0.10, a pair.
                functions, options = bound if isinstance(bound, tuple) else ((), bound)
                results = primitive.bind(*functions, *operands, **options)
                results = results if primitive.multiple_results else [results]
            if primitive.name in _FORMS and own[0]:
                path_of[equation.outvars[0]] = own[0]
            if name:
                self.names.append((self._layer, name))
                self.outputs.append(results[0])
            values |= zip(equation.outvars, results, strict=True)
        return [*map(read, jaxpr.outvars)]


def _inner_program(equation: Any) -> ClosedJaxpr | None:
    """The program that an equation calls once, if it does."""
    if equation.primitive.name not in _CALLS:
        return None
    inner = next(
        equation.params[name]
        for name in ("jaxpr", "call_jaxpr")
        if name in equation.params
    )
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def _activation_name(equation: Any, jaxpr: Jaxpr) -> str:
    """The name of the activation function that an equation is, or ""."""
    primitive, name = equation.primitive.name, equation.params.get("name")
    if primitive in ("jit", "custom_jvp_call") and name in _NAMED:
        return str(name)
    if primitive == "max" and any(map(_is_zero, equation.invars)):
        return "relu"
    if primitive == "tanh" and not _is_within_gelu(equation.outvars[0], jaxpr):
        return "tanh"
    return ""


def _is_zero(atom: Any) -> bool:
    return isinstance(atom, Literal) and np.ndim(atom.val) == 0 and atom.val == 0


def _is_within_gelu(output: Var, jaxpr: Jaxpr) -> bool:
    """Whether 1 is added to a tanh, as in the approximation of `gelu`."""
    uses = [equation for equation in jaxpr.eqns if output in equation.invars]
    return bool(uses) and all(
        use.primitive.name == "add"
        and any(isinstance(a, Literal) and np.all(a.val == 1) for a in use.invars)
        for use in uses
    )


def name_layers() -> contextlib.AbstractContextManager[Any]:
    """Adds the names of Haiku's modules to a `FloatingPointError` that passes them."""

    def call(next_function: Any, arguments: Any, keywords: Any, context: Any) -> Any:
        if context.method_name != "__call__":
            return next_function(*arguments, **keywords)
        with locate(f"layer `{context.module.module_name}`"):
            return next_function(*arguments, **keywords)

    return hk.intercept_methods(call)
