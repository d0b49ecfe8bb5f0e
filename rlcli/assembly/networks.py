"""The recipe's networks, as the functions that an updater asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax

from rlcli import registry, schedules
from rlcli.assembly.parts import (
    build_part,
    failed,
    format_names,
    is_own,
    positional_parameters,
)
from rlcli.assembly.preprocessing import network_preprocessing
from rlcli.errors import RlcliError, quote, suggest
from rlcli.networks import functions, memory
from rlcli.networks.heads import Head
from rlcli.networks.masking import mask_network
from rlcli.preprocessing import Preprocess
from rlcli.preprocessing.network_inputs import prepare_forward_pass, prepare_torso
from rlcli.recipe import DEFAULT, SHARED, NetworkSpec, Part, Recipe
from rlcli.types import Clock, Key, Network, Params
from rlcli.updaters import Spaces
from rlcli.xla.numeric_limits import INT32_MAX


def build_network(
    recipe: Recipe,
    clock: Clock,
    env_spaces: Spaces,
    used_names: set[str],
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
    used_names.add(name)
    specs = recipe.network
    spec = specs.get(name) or specs.get(DEFAULT)
    if spec is None and SHARED not in specs:
        raise recipe.error(
            ("network",),
            f"updater {quote(recipe.updater.name)} needs a network `{name}`",
            f"`network:` has {format_names(specs)}",
        )
    options = schedules.evaluate_options(
        spec.head if spec else {}, clock, recipe.train.steps
    )
    head = _build_head(recipe, name, head_factory, options)
    torso_spec = spec if spec is not None and spec.part is not None else specs[SHARED]
    if observation is not None and torso_spec is not spec:
        raise recipe.error(
            ("network", SHARED),
            f"network `{name}` does not see what the environment shows: it cannot "
            "share a torso with what does",
            "leave out `shared`, and give each function a network of its own",
        )
    space = env_spaces.observation if observation is None else observation
    steps = network_preprocessing(recipe, torso_spec) if observation is None else []
    if action is not None:
        space = functions.Pair(space, action)
    try:
        function = _network_factory(
            recipe, clock, torso_spec, steps, torso_spec is spec
        )
        torso_spec = mask_network(function(name, head, space, copies), head, space)
        return _bounded(recipe, name, torso_spec)
    except RlcliError as error:
        raise recipe.locate_error(("network",), error) from error


def _network_factory(
    recipe: Recipe,
    clock: Clock,
    spec: NetworkSpec,
    steps: list[Preprocess],
    is_separate: bool,
) -> Callable[[str, Head, gymnasium.Space, int | None], Network]:
    """What makes a function of the network; `is_separate`: on no torso that others
    share.

    `steps` come before all that it reads.
    """
    part = spec.part
    assert part is not None  # the grammar sees to it
    factory = registry.find("network", part.name).factory
    if positional_parameters(factory):
        if spec.memory is not None:
            raise recipe.error(
                ("network", "memory"),
                f"network `{part.name}` is a whole forward pass: it takes no memory",
            )
        forward = _forward(recipe, clock, part, factory)

        def passing(
            name: str, head: Head, space: gymnasium.Space, copies: int | None
        ) -> Network:
            batched_forward = prepare_forward_pass(forward, steps, space)
            return functions.forward_pass(name, batched_forward, head, space, copies)

        return passing
    torso = prepare_torso(build_part(part, clock, recipe), steps)
    if spec.memory is None:
        make = functions.separate_network if is_separate else functions.shared_network
        return lambda name, *rest: make(name, torso, *rest)
    recall = (
        memory.separate_recurrent_network
        if is_separate
        else memory.shared_recurrent_network
    )
    core = build_part(spec.memory, clock, recipe)
    return lambda name, *rest: recall(name, torso, core, *rest)


def _forward(
    recipe: Recipe, clock: Clock, part: Part, factory: Callable
) -> Callable[..., Any]:
    """A forward pass with its options as they are at that time."""
    settings = schedules.evaluate_options(part.options, clock, recipe.train.steps)
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


def _build_head(
    recipe: Recipe,
    name: str,
    factory: Callable[..., Head],
    options: Mapping[str, Any],
) -> Head:
    known_options = registry.options(factory)
    if "name" in options and "name" not in known_options:
        raise recipe.error(
            ("network", "head", "name"),
            f"network `{name}` has no head {quote(options['name'])}: it predicts no "
            "returns",
            "say for each function what its head is, as in `value: {…, head: …}`",
        )
    # What the options of a head with a name are, the grammar has seen to.
    for option in () if "name" in known_options else options:
        if option not in known_options:
            raise recipe.error(
                ("network", "head", option),
                f"the head of network `{name}` has no option {quote(option)}",
                suggest(option, known_options),
            )
    try:
        return factory(**options)
    except RlcliError as error:
        raise recipe.locate_error(("network", "head"), error) from error
