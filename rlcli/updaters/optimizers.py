"""Optimizers: every optax optimizer by name, and one per parameter group."""

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Le, Lt
from jaxtyping import Bool

from rlcli.networks.freezing import Frozen, frozen_part
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, NonNegative, Params, Positive, Probability
from rlcli.xla.control_flow import tree_select
from rlcli.xla.tree_paths import leaves_by_path

Natural = Annotated[int, Ge(0)]

CLIP = "clip_norm"
_NOTHING: Frozen = {}
_FOR_VECTORS = (optax.sm3,)  # they need at least one axis, and one number in each
_POSITIVE: Any = Positive  # `Any`: type checkers reject `Positive | None` as a value
_DECAY: Any = Annotated[float, Ge(0.0), Lt(1.0)]
# Ranges of options that differ from `NonNegative`, by name. A decay of 1 ignores every
# gradient, and its bias correction divides by zero.
_RANGES: dict[str, Any] = {
    **dict.fromkeys(("b1", "b2", "b3", "rho", "decay"), _DECAY),
    "momentum": Probability,
    "eta_minus": Probability,
    "eta_plus": Annotated[float, Ge(1.0)],
    "threshold": Annotated[float, Ge(4.0)],  # below, RAdam's square root is imaginary
    "decay_offset": Annotated[
        int, Ge(0), Le(0)
    ],  # optax counts steps of an earlier run
}


def partition_by_group(
    groups: Mapping[str, optax.GradientTransformation],
    frozen: Frozen = _NOTHING,
    torso: Callable[[], Collection[str]] = set,
) -> optax.GradientTransformation:
    """One optimizer per parameter group; `default` applies to groups not listed.

    The groups are the top-level names of the parameters: `q`, `policy`, `shared`, …
    Parts that are `frozen` for the whole run have no optimizer. Those that learn later
    have one of their own, which begins then; `torso` are the paths of torsos.
    """
    if set(groups) == {"default"} and not frozen:
        return groups["default"]
    transformations: dict[Hashable, optax.GradientTransformation] = {**groups}
    for part, is_frozen in frozen.items():
        own = groups.get(part.partition("/")[0], groups["default"])
        is_always = isinstance(is_frozen, bool)
        transformations[_label(part)] = (
            optax.set_to_zero() if is_always else _pause(own, is_frozen)
        )

    def labels(params: Params) -> ArrayTree:
        paths = torso() if frozen else ()
        names = []
        for path in leaves_by_path(params):
            group, part = path.partition("/")[0], frozen_part(path, frozen, paths)
            own = group if group in groups else "default"
            names.append(_label(part) if part else own)
        return jax.tree.unflatten(jax.tree.structure(params), names)

    return optax.partition(transformations, labels)


def _label(part: str) -> str:
    """The label of a frozen part, which no group has."""
    return f"frozen {part}"


def _pause(
    transformation: optax.GradientTransformation, is_paused: Bool[Array, ""]
) -> optax.GradientTransformation:
    """An optimizer that changes nothing while paused, not even its state."""

    def update(updates, state, params=None):
        changed, new_state = transformation.update(updates, state, params)
        zeros = jax.tree.map(jnp.zeros_like, changed)
        return tree_select(is_paused, (zeros, state), (changed, new_state))

    return optax.GradientTransformation(transformation.init, update)


def _option_annotation(parameter: inspect.Parameter) -> Any | None:
    """The type of an optax option by its default; None if recipes cannot set it."""
    if parameter.name == "learning_rate":
        return NonNegative
    if parameter.name in _RANGES:
        option_range = _RANGES[parameter.name]
        return option_range if parameter.default is not None else option_range | None
    if isinstance(parameter.default, bool):
        return bool
    if isinstance(parameter.default, int):
        return Natural
    if isinstance(parameter.default, float):
        return NonNegative
    return None


def _from_optax(factory: Callable) -> Callable:
    """Wraps an optax optimizer: only options that recipes may set, and `clip_norm`."""
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default_value(name, parameter.default),
            annotation=annotation,
        )
        for name, parameter in inspect.signature(factory).parameters.items()
        if (annotation := _option_annotation(parameter)) is not None
    ]
    defaults = {parameter.name: parameter.default for parameter in parameters}

    def optimizer(
        *, clip_norm: float | None = None, **options: Any
    ) -> optax.GradientTransformation:
        transformation = factory(**{**defaults, **options})
        if factory in _FOR_VECTORS:
            transformation = _on_vectors(transformation)
        if clip_norm is None:
            return transformation
        return optax.chain(optax.clip_by_global_norm(clip_norm), transformation)

    clip = inspect.Parameter(
        CLIP, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_POSITIVE | None
    )
    signature = inspect.Signature([*parameters, clip])
    optimizer.__signature__ = signature  # type: ignore[attr-defined] # PEP 362
    optimizer.__name__ = factory.__name__
    optimizer.__module__ = factory.__module__
    optimizer.__doc__ = inspect.getdoc(factory)
    return optimizer


def _on_vectors(
    transformation: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """Extends an optimizer to scalars and empty arrays, as vectors of one number."""

    def to_vectors(tree: ArrayTree) -> ArrayTree:
        return jax.tree.map(
            lambda leaf: jnp.resize(leaf, (1,)) if leaf.size < 2 else leaf, tree
        )

    def update(updates, state, params=None):
        vectors = None if params is None else to_vectors(params)
        changed, state = transformation.update(to_vectors(updates), state, vectors)
        return jax.tree.map(
            lambda update, leaf: jnp.resize(update, leaf.shape), changed, updates
        ), state

    return optax.GradientTransformation(
        lambda params: transformation.init(to_vectors(params)), update
    )


def _default_value(name: str, default: Any) -> Any:
    if name == "learning_rate" and default in (None, inspect.Parameter.empty):
        return 1e-3
    return default


def _is_optimizer(member: Any) -> bool:
    """Whether it takes a learning rate and has no other required argument.

    Excludes parts of optimizers (`scale_by_…`) and optimizers that need more than a
    gradient: a line search needs the loss function, and noise needs a key every step.
    """
    if not inspect.isfunction(member) or member.__name__.startswith(("_", "scale_by_")):
        return False
    parameters = inspect.signature(member).parameters
    required_names = {
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
    }
    needs_more = {"linesearch", "key"} & set(parameters)
    return (
        "learning_rate" in parameters
        and required_names <= {"learning_rate"}
        and not needs_more
    )


for _name, _member in inspect.getmembers(optax, _is_optimizer):
    register("optimizer", _name)(_from_optax(_member))
