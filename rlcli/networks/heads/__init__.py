"""Heads: from features to the outputs that an updater uses.

Belongs here: Haiku functions of a torso and its features, `[N, features] -> [N, ...]`.
May import: other modules of networks, distributions, and the ground.

Here are the heads whose outputs are one array, and those of a learned model (MuZero);
`returns` has those that predict returns.
"""

from typing import Any, NamedTuple

import haiku as hk
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rlcli.distributions import Distribution
from rlcli.distributions.action_masks import centre_advantages, mask_outputs
from rlcli.networks.heads.layers import Head as Head
from rlcli.networks.heads.layers import readout
from rlcli.networks.heads.returns import Actions as Actions
from rlcli.networks.heads.returns import Role as Role
from rlcli.networks.heads.returns import return_head as return_head
from rlcli.networks.predictions import Prediction
from rlcli.networks.torsos import Torso
from rlcli.types import Array


def action_values_head(actions: int, *, dueling: bool = False) -> Head:
    """One value per action.

    Dueling: q(s, a) = v(s) + A(s, a) − mean A(s, ·) (Wang et al., 2016,
    https://arxiv.org/abs/1511.06581). The mean is over the legal actions.
    """

    def read(torso: Torso, features: Float[Array, "N F"]) -> Float[Array, "N A"]:
        return readout(torso, features, (actions,), 1, dueling=dueling)[..., 0]

    return Head(
        read,
        (actions,),
        actions=(actions,),
        mask=mask_outputs,
        centre=centre_advantages if dueling else None,
    )


def state_value_head() -> Head:
    """One value, `[N]`."""
    return Head(lambda torso, features: torso.outputs(1, 1.0)(features)[..., 0], ())


def distribution_head(distribution: Distribution) -> Head:
    """The parameters of a distribution over actions.

    With `init: orthogonal` the initial outputs are near zero, so the initial policy is
    almost uniform (Andrychowicz et al., 2021, https://arxiv.org/abs/2006.05990). The
    log-scales of normal distributions are separate parameters and do not depend on
    the observation.
    """
    log_scales = np.array(distribution.log_scales, int)
    others = np.setdiff1d(np.arange(distribution.size), log_scales)
    order = np.argsort(np.concatenate([others, log_scales]))
    is_in_order = np.all(np.diff(order) == 1)  # as of a Box alone

    def read(torso: Torso, features: Float[Array, "N F"]) -> Float[Array, "N size"]:
        outputs = torso.outputs(len(others), 0.01)(features)
        if not len(log_scales):
            return outputs
        own = hk.get_parameter("log_scale", (len(log_scales),), init=jnp.zeros)
        own = jnp.broadcast_to(own, (len(outputs), len(own)))
        both = jnp.concatenate([outputs, own], axis=-1)
        return both if is_in_order else both[..., order]

    shape = (distribution.size,)
    if distribution.name != "categorical":
        return Head(read, shape)
    return Head(read, shape, actions=shape, mask=mask_outputs)


def action_head(size: int) -> Head:
    """`size` outputs `[N, size]`, such as an action.

    With `init: orthogonal` they are near zero initially.
    """
    return Head(lambda torso, features: torso.outputs(size, 0.01)(features), (size,))


def feature_head(size: int) -> Head:
    """`size` outputs `[N, size]` of the usual scale, such as learned features."""
    return Head(lambda torso, features: torso.outputs(size, 1.0)(features), (size,))


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
