"""The recipe's networks, as the functions that an updater asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax

from rlcli import registry, schedules
from rlcli.assembly.parts import failed, is_own, listed, made, positional
from rlcli.assembly.preprocessing import of_network
from rlcli.errors import RlcliError, nearest, quote
from rlcli.networks import functions, memory
from rlcli.networks.heads import Head
from rlcli.networks.masking import masking
from rlcli.preprocessing import Preprocess
from rlcli.preprocessing.network_inputs import forwarded, prepared
from rlcli.recipe import DEFAULT, SHARED, NetworkSpec, Part, Recipe
from rlcli.types import Clock, Key, Network, Params
from rlcli.updaters import Spaces
from rlcli.xla.numeric_limits import INT32_MAX


def network(
    recipe: Recipe,
    clock: Clock,
    shown: Spaces,
    used: set[str],
    name: str,
    head_factory: Callable[..., Head],
    *,
    observation: gymnasium.Space | None = None,
    action: gymnasium.Space | None = None,
    copies: int | None = None,
) -> Network:
    """The recipe's network as function `name` of the observation, or of the pair.

    With `observation`, a space, it is a function of its elements instead of what the
    environment shows. With `action`, a space, it takes (observation, action); with
    `copies` there are so many, from different parameters, with an axis in front of all
    they say.
    """
    used.add(name)
    specs = recipe.network
    spec = specs.get(name) or specs.get(DEFAULT)
    if spec is None and SHARED not in specs:
        raise recipe.error(
            ("network",),
            f"updater {quote(recipe.updater.name)} needs a network `{name}`",
            f"`network:` has {listed(specs)}",
        )
    options = schedules.at(spec.head if spec else {}, clock, recipe.train.steps)
    head = _head(recipe, name, head_factory, options)
    found = spec if spec is not None and spec.part is not None else specs[SHARED]
    if observation is not None and found is not spec:
        raise recipe.error(
            ("network", SHARED),
            f"network `{name}` does not see what the environment shows: it cannot "
            "share a torso with what does",
            "leave out `shared`, and give each function a network of its own",
        )
    space = shown.observation if observation is None else observation
    steps = of_network(recipe, found) if observation is None else []
    if action is not None:
        space = functions.Pair(space, action)
    try:
        function = _function(recipe, clock, found, steps, found is spec)
        found = masking(function(name, head, space, copies), head, space)
        return _bounded(recipe, name, found)
    except RlcliError as error:
        raise recipe.placed(("network",), error) from error


def _function(
    recipe: Recipe,
    clock: Clock,
    spec: NetworkSpec,
    steps: list[Preprocess],
    alone: bool,
) -> Callable[[str, Head, gymnasium.Space, int | None], Network]:
    """What makes a function of the network; `alone`: on no torso that others share.

    `steps` come before all that it reads.
    """
    part = spec.part
    assert part is not None  # the grammar sees to it
    factory = registry.find("network", part.name).factory
    if positional(factory):
        if spec.memory is not None:
            raise recipe.error(
                ("network", "memory"),
                f"network `{part.name}` is a whole forward pass: it takes no memory",
            )
        forward = _forward(recipe, clock, part, factory)

        def passing(
            name: str, head: Head, space: gymnasium.Space, copies: int | None
        ) -> Network:
            own = forwarded(forward, steps, space)
            return functions.forward_pass(name, own, head, space, copies)

        return passing
    torso = prepared(made(part, clock, recipe), steps)
    if spec.memory is None:
        make = functions.own if alone else functions.sharing
        return lambda name, *rest: make(name, torso, *rest)
    recall = memory.own if alone else memory.sharing
    carried = made(spec.memory, clock, recipe)
    return lambda name, *rest: recall(name, torso, carried, *rest)


def _forward(
    recipe: Recipe, clock: Clock, part: Part, factory: Callable
) -> Callable[..., Any]:
    """A forward pass with its options as they are at that time."""
    settings = schedules.at(part.options, clock, recipe.train.steps)
    label = f"network {quote(part.name)}"

    def forward(*inputs: Any) -> Any:
        try:
            outputs = factory(*inputs, **settings)
        except RlcliError:
            raise
        except Exception as error:
            if is_own(factory):
                raise
            message = failed(label, error, factory)
            raise recipe.error(("network",), message) from error
        for leaf in jax.tree.leaves(outputs):
            if not hasattr(leaf, "shape"):
                kind = quote(type(leaf).__name__)
                message = f"{label} gives {kind} where an array is needed"
                raise recipe.error(("network",), message)
        return outputs

    return forward


def _bounded(recipe: Recipe, name: str, network: Network) -> Network:
    """The network; its `init` refuses arrays whose entries an int32 cannot count."""

    def init(key: Key) -> Params:
        params = network.init(key)
        shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
        largest = max(shapes, key=math.prod, default=())
        if math.prod(largest) > INT32_MAX:
            shape = " × ".join(f"{each:,}" for each in largest)
            raise recipe.error(
                ("network",),
                f"network `{name}` has an array of {shape} parameters, and 32-bit "
                f"indices count to {INT32_MAX:,}",
                "choose smaller layers",
            )
        return params

    return network._replace(init=init)


def _head(
    recipe: Recipe,
    name: str,
    factory: Callable[..., Head],
    options: Mapping[str, Any],
) -> Head:
    known = registry.options(factory)
    if "name" in options and "name" not in known:
        raise recipe.error(
            ("network", "head", "name"),
            f"network `{name}` has no head {quote(options['name'])}: it predicts no "
            "returns",
            "say for each function what its head is, as in `value: {…, head: …}`",
        )
    # What the options of a head with a name are, the grammar has seen to.
    for option in () if "name" in known else options:
        if option not in known:
            raise recipe.error(
                ("network", "head", option),
                f"the head of network `{name}` has no option {quote(option)}",
                nearest(option, known),
            )
    try:
        return factory(**options)
    except RlcliError as error:
        raise recipe.placed(("network", "head"), error) from error
