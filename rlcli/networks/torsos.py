"""Torsos: from observations to features. `images` has the torsos for images."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Float

from rlcli.networks.batch_norm import BatchRenorm
from rlcli.networks.inputs import flat_reader
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Structural

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Init = Literal["fan_in", "orthogonal"]
DropoutRate = Annotated[float, Ge(0.0), Lt(1.0), "structural"]
GAIN = float(np.sqrt(2.0))  # keeps the scale of activations through relu


class Torso(NamedTuple):
    """`features` is a Haiku function of inputs.

    `outputs(size, scale)` returns the Haiku layer from features to outputs of a head;
    `scale` is the scale of the initial outputs (1 where it does not matter).
    `input_reader(space)` returns a function from observations `[N, ...]` to inputs, by
    default flat vectors. Other inputs, such as features of a shared torso concatenated
    with an action, are always flat vectors.
    """

    features: Callable[[Any], Float[Array, "N F"]]
    outputs: Callable[[int, float], Callable[..., Array]]
    input_reader: Callable[[gymnasium.Space], Callable[[ArrayTree], ArrayTree]] = (
        flat_reader
    )
    # The same features, normalized by the statistics of the batch: a Haiku function
    # that updates its state. None: there is no batch normalization.
    learn_features: Callable[[Any], Float[Array, "N F"]] | None = None
    # Whether features draw noise where there is a key. Only functions that predict
    # returns, on torsos of their own, get one.
    has_dropout: bool = False


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

    return Torso(lambda inputs: inputs, outputs)


@register("network")
def linear() -> Torso:
    """Linear function of the observation, initially zero."""
    return Torso(lambda inputs: inputs, _zero_linear)


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
