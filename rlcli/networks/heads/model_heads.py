"""Heads of a learned model (MuZero): representation, dynamics and prediction."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from rlcli.networks.heads.head import Head
from rlcli.networks.heads.returns import return_head
from rlcli.networks.predictions import Prediction
from rlcli.networks.torsos import Torso
from rlcli.types import Array

_MIN_SPREAD = 1e-5  # a smaller spread is not scaled up to 1


class DynamicsOutput(NamedTuple):
    """The result of an action, as the model predicts it."""

    hidden: Float[Array, "*batch size"]  # the next hidden state
    reward: Prediction


class PredictionOutput(NamedTuple):
    """The policy and the value of a hidden state."""

    logits: Float[Array, "*batch A"]
    value: Prediction


def hidden_state_head(size: int) -> Head:
    """A hidden state of `size` numbers, with minimum 0 and maximum 1."""
    return Head(
        lambda torso, features: _hidden_state(torso, features, size), (size,), None
    )


def dynamics_head(size: int, *, name: str = "scalar", **options: Any) -> Head:
    """The next hidden state, and the reward, predicted by a return head `name`."""
    reward = return_head(name=name, **options)

    def read(torso: Torso, features: Float[Array, "N F"]) -> DynamicsOutput:
        return DynamicsOutput(
            _hidden_state(torso, features, size), reward.read(torso, features)
        )

    return Head(read, (), None)


def prediction_head(actions: int, *, name: str = "scalar", **options: Any) -> Head:
    """Action logits, initially near zero, and the value, by a return head `name`."""
    value = return_head(name=name, **options)

    def read(torso: Torso, features: Float[Array, "N F"]) -> PredictionOutput:
        return PredictionOutput(
            torso.outputs(actions, 0.01)(features), value.read(torso, features)
        )

    return Head(read, (), None)


def min_max_normalize(
    hidden: Float[Array, "*batch size"],
) -> Float[Array, "*batch size"]:
    """Scales a hidden state to numbers from 0 to 1.

        s ↦ (s − min s) / (max s − min s)

    Hidden states and one-hot actions then have the same range (Schrittwieser et al.,
    2020, appendix G, https://arxiv.org/abs/1911.08265).
    """
    minimum = jnp.min(hidden, axis=-1, keepdims=True)
    spread = jnp.max(hidden, axis=-1, keepdims=True) - minimum
    return (hidden - minimum) / jnp.maximum(spread, _MIN_SPREAD)


def _hidden_state(
    torso: Torso, features: Float[Array, "N F"], size: int
) -> Float[Array, "N {size}"]:
    return min_max_normalize(torso.outputs(size, 1.0)(features))
