"""Networks of other libraries: a pytree of parameters and a function of it."""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from rlcli.errors import RlcliError
from rlcli.types import ArrayTree


def from_pytree(
    init: Callable[..., ArrayTree], apply: Callable[..., Any]
) -> Callable[..., Any]:
    """Makes a function for a torso or a forward pass from a network without Haiku.

    `init(key, *inputs)` returns the parameters: a pytree, such as the variables of Flax
    Linen or a module of Equinox or Flax NNX. Its arrays of floats are trained; leaves
    that are no arrays, such as activation functions, stay as they are.
    `apply(params, *inputs)` returns the outputs. Inputs are batches `[N, ...]`; a torso
    gets those that the parameters of `apply` name, as `apply(params, obs, action)`.

    Raises `RlcliError` for a network with state, such as the statistics of batch
    normalization or the keys of dropout: nothing would update it.
    """

    def function(*inputs: Any, **named: Any) -> Any:
        return _Pytree(init, apply)(*inputs, **named)

    with contextlib.suppress(TypeError, ValueError):  # a function in C
        signature = inspect.Signature(_input_parameters(apply))
        function.__signature__ = signature  # type: ignore[attr-defined] # PEP 362
    return function


def _input_parameters(apply: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of inputs: of `apply`, or of the module to which it passes all.

    The method `apply` of a module of Flax Linen takes any inputs of its `__call__`. Any
    number of inputs, as of `Sequential`, is one: without one it would be no function of
    observations.
    """
    _, *parameters = inspect.signature(apply).parameters.values()
    module = getattr(apply, "__self__", None)
    if callable(module) and _takes_any_inputs(parameters):
        parameters = [*inspect.signature(module).parameters.values()]
    if _takes_any_inputs(parameters):
        parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_ONLY)
    return parameters


def _takes_any_inputs(parameters: list[inspect.Parameter]) -> bool:
    return [each.kind for each in parameters[:1]] == [inspect.Parameter.VAR_POSITIONAL]


class _Pytree(hk.Module):
    def __init__(self, init: Callable, apply: Callable) -> None:
        super().__init__("pytree")
        self.init, self.function = init, apply

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        structure: Any = None

        def arrays(key: Any) -> list[Any]:
            nonlocal structure
            tree = self.init(key, *inputs, **named)
            _refuse_state(tree)
            leaves, treedef = jax.tree.flatten(tree)
            structure = leaves, treedef
            return [leaf for leaf in leaves if hasattr(leaf, "dtype")]

        shapes = jax.eval_shape(arrays, jax.random.key(0))
        for shape in shapes:
            if not jnp.issubdtype(shape.dtype, jnp.floating):
                raise _state_error(f"an array of {shape.dtype}")
        # `hk.running_init` is false in `apply`, which needs the shapes only.
        values = arrays(hk.next_rng_key()) if hk.running_init() else shapes
        parameters = iter(
            hk.get_parameter(
                f"leaf{index}",
                shape.shape,
                shape.dtype,
                init=lambda *_, value=value: jnp.asarray(value),
            )
            for index, (shape, value) in enumerate(zip(shapes, values, strict=True))
        )
        leaves, treedef = structure
        merged = [
            next(parameters) if hasattr(leaf, "dtype") else leaf for leaf in leaves
        ]
        return self.function(jax.tree.unflatten(treedef, merged), *inputs, **named)


def _refuse_state(tree: ArrayTree) -> None:
    if isinstance(tree, Mapping) and "params" in tree:  # the variables of Flax Linen
        for collection in tree:
            if collection != "params" and jax.tree.leaves(tree[collection]):
                raise _state_error(f"variables `{collection}`")
    variables = jax.tree.leaves(tree, is_leaf=_is_nnx_variable)
    for node in filter(_is_nnx_variable, variables):
        if "Param" not in _class_names(node):
            raise _state_error(f"a variable `{type(node).__name__}`")


def _is_nnx_variable(node: Any) -> bool:
    is_flax = type(node).__module__.startswith("flax.") or hasattr(node, "get_metadata")
    return is_flax and "Variable" in _class_names(node)


def _class_names(node: Any) -> set[str]:
    return {each.__name__ for each in type(node).__mro__}


def _state_error(state: str) -> RlcliError:
    return RlcliError(
        f"the network of `from_pytree` has state, {state}, which nothing would update",
        "use layers without state, such as layer normalization, or `network: {name: "
        "mlp, batch_norm: true}`",
    )
