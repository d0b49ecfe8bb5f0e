"""The recipe's networks, as the functions that an updater asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from rlcli import registry, schedules
from rlcli.build.parts import listed, made, positional
from rlcli.build.preprocessing import of_network
from rlcli.errors import RlcliError, nearest
from rlcli.networks import functions, memory
from rlcli.networks.heads import Head
from rlcli.networks.masking import masking
from rlcli.preprocessing import Preprocess
from rlcli.preprocessing.reading import forwarded, prepared
from rlcli.recipe import DEFAULT, SHARED, NetworkSpec, Recipe
from rlcli.types import Clock, Network
from rlcli.updaters import Spaces


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
            f"updater `{recipe.updater.name}` needs a network `{name}`",
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
        return masking(function(name, head, space, copies), head, space)
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
        settings = schedules.at(part.options, clock, recipe.train.steps)
        forward = functools.partial(factory, **settings)

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
            f"network `{name}` has no head `{options['name']}`: it predicts no returns",
            "say for each function what its head is, as in `value: {…, head: …}`",
        )
    # What the options of a head with a name are, the grammar has seen to.
    for option in () if "name" in known else options:
        if option not in known:
            raise recipe.error(
                ("network", "head", option),
                f"the head of network `{name}` has no option `{option}`",
                nearest(option, known),
            )
    try:
        return factory(**options)
    except RlcliError as error:
        raise recipe.placed(("network", "head"), error) from error
