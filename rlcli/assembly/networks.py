"""Networks: builds the functions of an updater from the recipe's networks."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax

from rlcli import registry, schedules
from rlcli.assembly.build_part import build_part, failure_message, format_names, is_own
from rlcli.assembly.preprocessing import (
    network_preprocessing,
    prepare_forward_pass,
    prepare_torso,
    preprocess_space,
)
from rlcli.errors import RlcliError, quote, suggest
from rlcli.networks import functions
from rlcli.networks.freezing import Frozen, freeze_network
from rlcli.networks.heads import Head
from rlcli.networks.masking import mask_network
from rlcli.networks.precision import compute_in
from rlcli.networks.torsos import bind_inputs
from rlcli.preprocessing import Preprocess
from rlcli.recipe import DEFAULT, SHARED, NetworkSpec, Recipe
from rlcli.types import Clock, Key, Network, Params
from rlcli.updaters import Spaces
from rlcli.xla.numeric_limits import INT32_MAX

_NAMED_INPUTS = (
    "; a parameter of `features` that is named `obs` gets observations with their "
    "members and axes, and one named `action` gets actions"
)


def build_network(
    recipe: Recipe,
    clock: Clock,
    env_spaces: Spaces,
    built_networks: dict[str, Network],
    name: str,
    head_factory: Callable[..., Head],
    *,
    observation: gymnasium.Space | None = None,
    action: gymnasium.Space | None = None,
    copies: int | None = None,
) -> Network:
    """Builds the recipe's network for function `name`, and adds it to `built_networks`.

    Its input is the environment's observation, or an element of the space `observation`
    if given. With the space `action` the input is the pair (observation, action). With
    `copies` there are several sets of parameters, and outputs have a leading axis.
    """
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
            f"network `{name}` does not take the environment's observations: it cannot "
            "share a torso with networks that do",
            "remove `shared`, and give each function its own network",
        )
    space = env_spaces.observation if observation is None else observation
    steps = network_preprocessing(recipe, torso_spec) if observation is None else []
    if action is not None:
        space = functions.Pair(space, action)
    try:
        function = _network_factory(
            recipe, clock, torso_spec, steps, torso_spec is spec
        )
        if _is_forward_pass(torso_spec):  # the outputs are not rlcli's dueling sum
            head = head._replace(centre=None)
        masked = mask_network(function(name, head, space, copies), head, space)
        masked = freeze_network(masked, frozen_at(recipe, clock))
        masked = masked._replace(space=preprocess_space(steps, space))
        built_networks[name] = _check_parameters(recipe, name, masked)
        return built_networks[name]
    except RlcliError as error:
        raise recipe.locate_error(("network",), error) from error


def frozen_at(recipe: Recipe, clock: Clock) -> Frozen:
    """Which parts of the networks are frozen at the clock."""
    return {
        name: True if until is True else clock.steps < until
        for name, until in recipe.freeze.items()
    }


def _network_factory(
    recipe: Recipe,
    clock: Clock,
    spec: NetworkSpec,
    steps: list[Preprocess],
    is_separate: bool,
) -> Callable[[str, Head, gymnasium.Space, int | None], Network]:
    """Returns `(name, head, space, copies) -> Network` for a network of the recipe.

    `steps` preprocess its input. If `is_separate`, the function does not share its
    torso with others.
    """
    part = spec.part
    assert part is not None  # guaranteed by the grammar
    factory = registry.find("network", part.name).factory
    label = f"network {quote(part.name)}"

    def explain_inputs(function: Callable, is_torso: bool) -> Callable[..., Any]:
        """A function of a user's network, whose errors say what it was given.

        The features of a torso have to be `[N, F]`.
        """

        def call(*inputs: Any) -> Any:
            given = f"it got {', '.join(map(_describe_arrays, inputs))}"
            try:
                outputs = function(*inputs)
            except (RlcliError, MemoryError):
                raise
            except (Exception, SystemExit) as error:  # a plug-in may raise anything
                message = failure_message(label, error, factory)
                is_vector = is_torso and not isinstance(inputs[0], Mapping)
                hint = f"{given}{_NAMED_INPUTS if is_vector else ''}"
                raise recipe.error(("network",), message, hint) from error
            rows = len(jax.tree.leaves(inputs)[0])
            if is_torso and getattr(outputs, "shape", ())[:-1] != (rows,):
                message = (
                    f"{label} returns features {_describe_arrays(outputs)}, expected "
                    f"one vector for each of {rows} rows"
                )
                raise recipe.error(("network",), message, given)
            return outputs

        return call

    def forward(*inputs: Any) -> Any:
        """A user's forward pass, with its options evaluated at the clock."""
        # Copies at each call, because the function may change its options in place.
        settings = schedules.evaluate_options(part.options, clock, recipe.train.steps)
        call = functools.partial(factory, **settings)
        outputs = explain_inputs(call, is_torso=False)(*inputs)
        for leaf in jax.tree.leaves(outputs):
            if not hasattr(leaf, "shape"):
                kind = quote(type(leaf).__name__)
                message = f"{label}: expected an array, got {kind}"
                raise recipe.error(("network",), message)
        return outputs

    if _is_forward_pass(spec):
        if spec.memory is not None:
            raise recipe.error(
                ("network", "memory"),
                f"network `{part.name}` is a complete forward pass, which cannot have "
                "a `memory`",
                "remove `memory`, or write a torso instead of a forward pass",
            )
        precise_forward = compute_in(recipe.train.precision, forward)

        def build_forward_pass(
            name: str, head: Head, space: gymnasium.Space, copies: int | None
        ) -> Network:
            batched_forward = prepare_forward_pass(precise_forward, steps, space)
            return functions.forward_pass(name, batched_forward, head, space, copies)

        return build_forward_pass
    torso = prepare_torso(bind_inputs(build_part(part, clock, recipe)), steps)

    def prepare(function: Callable) -> Callable:
        if not is_own(factory):
            function = explain_inputs(function, is_torso=True)
        return compute_in(recipe.train.precision, function)

    torso = torso._replace(features=prepare(torso.features), join=prepare(torso.join))
    if torso.learn_features is not None:
        torso = torso._replace(learn_features=prepare(torso.learn_features))
        if spec.memory is not None or not is_separate:
            raise recipe.error(
                ("network", "batch_norm"),
                "`batch_norm` requires a network without `memory`, and one for each "
                "function",
                "remove `memory` or `shared`, or use `layer_norm: true`",
            )

    def check(name: str, head: Head) -> Head:
        """Returns the head; refuses dropout where a function never draws it."""
        if not torso.has_dropout or (is_separate and head.predicts_returns):
            return head
        reason = "is not one" if is_separate else "shares its torso"
        raise recipe.error(
            ("network",),
            "`dropout` is for functions that predict returns, with a torso of their "
            f"own, and network `{name}` {reason}",
            "set it for one function, as in `network: {policy: mlp, critic: {name: "
            "mlp, dropout: 0.01}}`",
        )

    core = build_part(spec.memory, clock, recipe) if spec.memory else None
    build = functions.separate_network if is_separate else functions.shared_network
    return lambda name, head, space, copies: build(
        name, torso, check(name, head), space, copies, core
    )


def _is_forward_pass(spec: NetworkSpec) -> bool:
    """Whether the network is a user's forward pass, a function of observations."""
    assert spec.part is not None  # guaranteed by the grammar
    factory = registry.find("network", spec.part.name).factory
    return bool(registry.positional_parameters(factory))


def _describe_arrays(tree: Any) -> str:
    """The shapes and dtypes of a tree: `{goal: float32[8, 2]}`."""
    if isinstance(tree, Mapping):
        members = (f"{name}: {_describe_arrays(each)}" for name, each in tree.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(map(_describe_arrays, tree)) + ")"
    if not hasattr(tree, "shape"):
        return type(tree).__name__
    return f"{tree.dtype}[{', '.join(map(str, tree.shape))}]"


def _check_parameters(recipe: Recipe, name: str, network: Network) -> Network:
    """The network with an `init` that refuses parameters that rlcli cannot train.

    These are arrays too large for int32 indices, and of other dtypes than float32.
    """

    def init(key: Key) -> Params:
        params = network.init(key)
        shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
        suffix = functions.statistics_group("")
        trained = [params[group] for group in params if not group.endswith(suffix)]
        dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(trained)} - {"float32"}
        if dtypes:
            raise recipe.error(
                ("network",),
                f"network `{name}` has parameters of {', '.join(sorted(dtypes))}, "
                "expected float32",
                "make them float32; `train.precision` is for what they compute",
            )
        largest = max(shapes, key=math.prod, default=())
        if math.prod(largest) > INT32_MAX:
            shape = " × ".join(f"{size:,}" for size in largest)
            raise recipe.error(
                ("network",),
                f"network `{name}` has an array of {shape} parameters, but 32-bit "
                f"indices only reach {INT32_MAX:,}",
                "choose smaller layers",
            )
        return params

    return network._replace(init=init)


def _build_head(
    recipe: Recipe, name: str, factory: Callable[..., Head], options: Mapping[str, Any]
) -> Head:
    known_options = registry.options(factory)
    if "name" in options and "name" not in known_options:
        raise recipe.error(
            ("network", "head", "name"),
            f"network `{name}` cannot have the head {quote(options['name'])}: it does "
            "not predict returns",
            "set the head of each function, as in `value: {…, head: …}`",
        )
    # The grammar has already checked the options of a head with a name.
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
    except (Exception, SystemExit) as error:  # a plug-in may raise anything
        label = str(options.get("name", "scalar"))
        head = registry.find("head", label).factory
        if is_own(head):
            raise
        message = failure_message(f"head {quote(label)}", error, head)
        raise recipe.error(("network", "head"), message) from error
