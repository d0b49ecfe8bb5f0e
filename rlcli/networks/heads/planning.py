"""Heads of a learnt model: hidden states, what follows upon them, and their outlook."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from rlcli.networks.heads.head import Head
from rlcli.networks.heads.returns import prediction
from rlcli.networks.predictions import Prediction
from rlcli.networks.torsos import Torso
from rlcli.types import Array

_LEAST = 1e-5  # of a spread: a narrower one is not blown up


class Following(NamedTuple):
    """What an action leads to, by a model."""

    hidden: Array  # `[..., size]`
    reward: Prediction


class Outlook(NamedTuple):
    """What a hidden state promises."""

    logits: Array  # `[..., actions]`
    value: Prediction


def hidden(size: int) -> Head:
    """So many numbers for a hidden state, the least of them 0 and the greatest 1."""
    return Head(lambda torso, features: _hidden(torso, features, size), (size,), None)


def following(size: int, *, name: str = "scalar", **options: Any) -> Head:
    """The hidden state that follows, and the reward on the way, by a head of `name`."""
    reward = prediction(name=name, **options)

    def read(torso: Torso, features: Array) -> Following:
        return Following(_hidden(torso, features, size), reward.read(torso, features))

    return Head(read, (), None)


def outlook(actions: int, *, name: str = "scalar", **options: Any) -> Head:
    """Logits of the actions, near zero at first, and the value by a head of `name`."""
    value = prediction(name=name, **options)

    def read(torso: Torso, features: Array) -> Outlook:
        return Outlook(
            torso.outputs(actions, 0.01)(features), value.read(torso, features)
        )

    return Head(read, (), None)


def to_scale(hidden: Array) -> Array:
    """A hidden state `[..., size]` brought to numbers from 0 to 1.

        s ↦ (s − min s) / (max s − min s)

    So hidden states and one-hot actions are of a size (Schrittwieser et al., 2020,
    appendix G, https://arxiv.org/abs/1911.08265).
    """
    least = jnp.min(hidden, axis=-1, keepdims=True)
    spread = jnp.max(hidden, axis=-1, keepdims=True) - least
    return (hidden - least) / jnp.maximum(spread, _LEAST)


def _hidden(torso: Torso, features: Array, size: int) -> Array:
    return to_scale(torso.outputs(size, 1.0)(features))
