"""Torsos: from observations to features. `images` has the torsos for images."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Float

from rlcli.errors import RlcliError
from rlcli.networks.batch_norm import BatchRenorm
from rlcli.networks.inputs import Pair, flat_reader
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Structural

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Init = Literal["fan_in", "orthogonal"]
DropoutRate = Annotated[float, Ge(0.0), Lt(1.0), "structural"]
GAIN = float(np.sqrt(2.0))  # keeps the scale of activations through relu


def dense_join(
    features: Float[Array, "N F"], action: Float[Array, "N A"]
) -> Float[Array, "N F"]:
    """A relu layer of features and action, with as many units as there are features.

    The action enters after the first layers, as in the critic of DDPG (Lillicrap et
    al., 2016, https://arxiv.org/abs/1509.02971).
    """
    return jax.nn.relu(hk.Linear(features.shape[-1])(_concatenate(features, action)))


def _concatenate(
    features: Float[Array, "N F"], action: Float[Array, "N A"]
) -> Float[Array, "N F+A"]:
    return jnp.concatenate([features, action], axis=-1)


class Torso(NamedTuple):
    """Computes features from inputs, and has the layer from features to a head.

    `features` is a Haiku function. The names of its parameters say what it reads:

    - `features(obs)`: observations `[N, ...]` after preprocessing, for example a dict
      of arrays.
    - `features(obs, action)`: also the action, a vector `[N, A]`, one-hot if it is
      discrete; with `action=None` it serves functions of the observation, too.
    - `features(inputs)`, or any other name: what `input_reader(space)` returns from
      observations or from pairs with actions, by default flat vectors of all members.

    `join(features, action)` is a Haiku function. It adds the action to features without
    it: those of `features(obs)`, and those of a shared torso.

    `outputs(size, scale)` returns the Haiku layer from features to outputs of a head;
    `scale` is the scale of the initial outputs (1 where it does not matter).
    """

    features: Callable[..., Float[Array, "N F"]]
    outputs: Callable[[int, float], Callable[..., Array]]
    input_reader: Callable[[gymnasium.Space], Callable[[ArrayTree], ArrayTree]] = (
        flat_reader
    )
    # The same features, normalized by the statistics of the batch: a Haiku function
    # that updates its state. None: there is no batch normalization.
    learn_features: Callable[..., Float[Array, "N F"]] | None = None
    # Whether features draw noise where there is a key. Only functions that predict
    # returns, on torsos of their own, get one.
    has_dropout: bool = False
    join: Callable[[Array, Array], Array] = dense_join


def bind_inputs(torso: Torso) -> Torso:
    """The torso with `features` of one argument, which `input_reader` returns.

    Of a torso of `obs`, or of `obs` and `action`, the argument is the dict of both.
    """
    signature = _input_signature(torso.features)
    if signature is None:
        return torso
    names = [name for name in ("obs", "action") if name in signature.parameters]

    def bind(function: Callable[..., Array]) -> Callable[[dict[str, Any]], Array]:
        def features(inputs: dict[str, Any]) -> Array:
            given = {name: inputs[name] for name in names if name in inputs}
            # By position up to a parameter that keeps its default, then by name.
            bound = inspect.BoundArguments(signature, given)
            outputs = function(*bound.args, **bound.kwargs)
            if "action" in names or "action" not in inputs:
                return outputs
            return torso.join(outputs, inputs["action"])

        return features

    def input_reader(space: gymnasium.Space) -> Callable[[ArrayTree], dict[str, Any]]:
        if not isinstance(space, Pair):
            action = signature.parameters.get("action")
            if action is not None and action.default is action.empty:
                raise RlcliError(
                    "a torso of `obs` and `action` cannot read observations alone",
                    "give `action` the default None, or name the torso for functions "
                    "of both only: `network: {policy: …, critic: …}`",
                )
            return lambda obs: {"obs": obs}
        read_action = flat_reader(space.spaces[1])
        return lambda pair: {"obs": pair[0], "action": read_action(pair[1])}

    learn = torso.learn_features
    return torso._replace(
        features=bind(torso.features),
        input_reader=input_reader,
        learn_features=None if learn is None else bind(learn),
    )


def _input_signature(features: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of features with a parameter `obs`; None of others."""
    try:
        signature = inspect.signature(features)
    except (TypeError, ValueError):  # of a function in C
        return None
    return signature if "obs" in signature.parameters else None


def _zero_linear(size: int, scale: float) -> hk.Linear:
    del scale  # the initial outputs are zero
    return hk.Linear(size, w_init=jnp.zeros)


@register("network")
def table(*, initial: Structural = 0.0) -> Torso:
    """Table: one value per observation and output, initially equal.

    Observations must be one-hot for a table; Discrete ones are converted. An `initial`
    value above all returns is optimistic: the agent explores, because it tries every
    action until its value falls (Brafman and Tennenholtz, 2002,
    https://www.jmlr.org/papers/v3/brafman02a.html).
    """

    def outputs(size: int, scale: float) -> hk.Linear:
        return hk.Linear(size, False, hk.initializers.Constant(initial))

    return Torso(lambda inputs: inputs, outputs, join=_concatenate)


@register("network")
def linear() -> Torso:
    """Linear function of the observation, initially zero."""
    return Torso(lambda inputs: inputs, _zero_linear, join=_concatenate)


@register("network")
def mlp(
    *,
    layers: list[Count] = [64, 64],  # noqa: B006 - never mutated
    activation: Activation = "relu",
    layer_norm: bool = False,
    batch_norm: bool = False,
    dropout: DropoutRate = 0.0,
    init: Init = "fan_in",
) -> Torso:
    """Multi-layer perceptron (MLP): each layer is σ(norm(drop(W x + b))).

    `batch_norm` is batch renormalization of the inputs and of the outputs of each
    layer, for `crossq` (Bhatt et al., 2024, https://arxiv.org/abs/1902.05605).
    `layer_norm` is layer normalization, and `dropout` the probability that a unit is
    zero, for the critics of an updater: in the loss, in targets and where a policy
    explores or maximizes them, but not in evaluation (Hiraoka et al., 2022,
    https://arxiv.org/abs/2110.02034).

    `fan_in` is Haiku's initializer: truncated normal weights with scale 1/√inputs.
    `orthogonal`, usual for policy gradients, has gain √2 for relu and scales the output
    layer (Saxe et al., 2013, https://arxiv.org/abs/1312.6120).
    """
    options = (layers, activation, layer_norm, init, dropout)
    torso = Torso(dense_layers(*options), output_layer(init), has_dropout=dropout > 0)
    if not batch_norm:
        return torso
    return torso._replace(
        features=dense_layers(*options, lambda x: BatchRenorm(learns=False)(x)),
        learn_features=dense_layers(*options, lambda x: BatchRenorm(learns=True)(x)),
    )


def dense_layers(
    layers: Sequence[int],
    activation: Activation,
    layer_norm: bool,
    init: Init,
    dropout: float = 0.0,
    normalize: Callable[[Array], Array] = lambda features: features,
) -> Callable[[Array], Array]:
    """Dense layers with `layers` units, as a Haiku function.

    `normalize` is applied to the inputs and to the outputs of each layer.
    """
    activate = activation_function(activation)

    def features(inputs: Array) -> Array:
        inputs = normalize(inputs)
        for size in layers:
            inputs = hk.Linear(size, w_init=weight_initializer(init))(inputs)
            if dropout:
                inputs = _drop_units(dropout, inputs)
            if layer_norm:
                inputs = hk.LayerNorm(-1, True, True)(inputs)
            inputs = normalize(activate(inputs))
        return inputs

    return features


def _drop_units(rate: float, inputs: Array) -> Array:
    """Dropout: zeros with probability `rate`, the rest divided by 1 − `rate`.

    Without a key nothing is dropped.
    """
    key = hk.maybe_next_rng_key()
    return inputs if key is None else hk.dropout(key, rate, jnp.asarray(inputs))


def output_layer(init: Init) -> Callable[[int, float], hk.Linear]:
    """The `outputs` of a torso, with an initializer."""
    return lambda size, scale: hk.Linear(size, w_init=weight_initializer(init, scale))


def weight_initializer(
    init: Init, scale: float = GAIN
) -> hk.initializers.Initializer | None:
    """Returns an initializer of weights; None is Haiku's default, without scale."""
    return hk.initializers.Orthogonal(scale) if init == "orthogonal" else None


def activation_function(name: Activation) -> Callable[[Array], Array]:
    """Returns the activation function with a name."""
    return getattr(jnp if name == "tanh" else jax.nn, name)
