"""Heads of a learnt model: hidden states, what follows upon them, and their outlook."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from rlcli.networks.heads.head import Head
from rlcli.networks.heads.returns import return_head
from rlcli.networks.predictions import Prediction
from rlcli.networks.torsos import Torso
from rlcli.types import Array

_MIN_SPREAD = 1e-5  # of a spread: a narrower one is not blown up


class DynamicsOutput(NamedTuple):
    """What an action leads to, by a model."""

    hidden: Array  # `[..., size]`
    reward: Prediction


class PredictionOutput(NamedTuple):
    """What a hidden state promises."""

    logits: Array  # `[..., actions]`
    value: Prediction


def hidden_state_head(size: int) -> Head:
    """So many numbers for a hidden state, the least of them 0 and the greatest 1."""
    return Head(
        lambda torso, features: _hidden_state(torso, features, size), (size,), None
    )


def dynamics_head(size: int, *, name: str = "scalar", **options: Any) -> Head:
    """The hidden state that follows, and the reward on the way, by a head of `name`."""
    reward = return_head(name=name, **options)

    def read(torso: Torso, features: Array) -> DynamicsOutput:
        return DynamicsOutput(
            _hidden_state(torso, features, size), reward.read(torso, features)
        )

    return Head(read, (), None)


def prediction_head(actions: int, *, name: str = "scalar", **options: Any) -> Head:
    """Logits of the actions, near zero at first, and the value by a head of `name`."""
    value = return_head(name=name, **options)

    def read(torso: Torso, features: Array) -> PredictionOutput:
        return PredictionOutput(
            torso.outputs(actions, 0.01)(features), value.read(torso, features)
        )

    return Head(read, (), None)


def min_max_normalize(hidden: Array) -> Array:
    """A hidden state `[..., size]` brought to numbers from 0 to 1.

        s ↦ (s − min s) / (max s − min s)

    So hidden states and one-hot actions are of a size (Schrittwieser et al., 2020,
    appendix G, https://arxiv.org/abs/1911.08265).
    """
    minimum = jnp.min(hidden, axis=-1, keepdims=True)
    spread = jnp.max(hidden, axis=-1, keepdims=True) - minimum
    return (hidden - minimum) / jnp.maximum(spread, _MIN_SPREAD)


def _hidden_state(torso: Torso, features: Array, size: int) -> Array:
    return min_max_normalize(torso.outputs(size, 1.0)(features))
