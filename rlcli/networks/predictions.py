"""Predictions: predicted returns, and their losses against a target.

A prediction is a NamedTuple of arrays `[..., K]`. The last axis belongs to the
prediction: one value, the logits of atoms, or quantiles. The leading axes are those of
the caller. Targets bootstrap from a set of `Particles`, which every prediction returns,
so every update rule works with every head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Bool, Float, Int

from rlcli.distributions.action_masks import centre_advantages, mask_outputs
from rlcli.distributions.logits import project_probabilities
from rlcli.types import Array, ArrayTree
from rlcli.xla.indexing import select_index

Values: TypeAlias = Float[Array, "..."]
Elementwise = Callable[[Array], Array]  # of errors
Loss = Literal["mse", "huber", "logcosh"]
TransformName = Literal["log", "signed_hyperbolic"]

LOSSES: dict[str, Elementwise] = {
    "mse": optax.squared_error,
    "huber": optax.huber_loss,
    "logcosh": optax.log_cosh,
}


class Transform(NamedTuple):
    """A transform h of values, and its inverse. Transformed values are learned."""

    apply: Callable[[Values], Values]
    inverse: Callable[[Values], Values]


IDENTITY = Transform(lambda value: value, lambda value: value)


def value_transform(name: TransformName | None) -> Transform:
    """Returns the value transform with a name; None is the identity.

        log                  h(x) = sign(x) log(1 + |x|)
        signed_hyperbolic    h(x) = sign(x) (√(1 + |x|) − 1) + 0.001 x

    Such a transform compresses large values (Pohlen et al., 2018,
    https://arxiv.org/abs/1805.11593).
    """
    return IDENTITY if name is None else _TRANSFORMS[name]


def _log(value: Array) -> Array:
    return jnp.sign(value) * jnp.log1p(jnp.abs(value))


def _inverse_log(value: Array) -> Array:
    return jnp.sign(value) * jnp.expm1(jnp.abs(value))


def _signed_hyperbolic(value: Array) -> Array:
    return jnp.sign(value) * (jnp.sqrt(jnp.abs(value) + 1) - 1) + _EPSILON * value


def _inverse_signed_hyperbolic(value: Array) -> Array:
    # z = √(|x| + 1) is the positive root of ε z² + z − (|h| + 1 + ε). The usual form,
    # (√(1 + 4 ε …) − 1) / 2 ε, has an error of 3e-5 near 0 in float32.
    size = jnp.abs(value) + 1 + _EPSILON
    root = 2 * size / (1 + jnp.sqrt(1 + 4 * _EPSILON * size))
    return jnp.sign(value) * (jnp.square(root) - 1)


_EPSILON = 1e-3  # of the signed hyperbolic transform, which makes it invertible
_TRANSFORMS = {
    "log": Transform(_log, _inverse_log),
    "signed_hyperbolic": Transform(_signed_hyperbolic, _inverse_signed_hyperbolic),
}


class Particles(NamedTuple):
    """A distribution of returns: values and their probabilities."""

    value: Float[Array, "*batch K"]
    probability: Float[Array, "*batch K"]

    def mean(self) -> Values:
        """The mean."""
        return jnp.sum(self.value * self.probability, axis=-1)

    def min_over_critics(self) -> Particles:
        """The critic with the minimum mean: `[C, ..., K] -> [..., K]`.

        The whole distribution of that critic, as in DSAC-T (Duan et al., 2023,
        https://arxiv.org/abs/2310.05858). A minimum at each quantile (Ma et al., 2020,
        https://arxiv.org/abs/2004.14547) needs quantiles of the same fractions, and has
        a mean below that of both critics.
        """
        index = jnp.argmin(self.mean(), axis=0)[..., None]
        return jax.tree.map(lambda leaf: select_index(leaf, index, 0), self)

    def mix(self, probability: Float[Array, "*batch M"]) -> Particles:
        """The mixture of M distributions `[..., M, K]`, with these probabilities."""
        weight = self.probability * probability[..., None]
        shape = (*weight.shape[:-2], -1)
        return Particles(self.value.reshape(shape), weight.reshape(shape))

    def mix_critics(self) -> Particles:
        """The mixture of all critics, equally likely: `[C, ..., K] -> [..., C · K]`.

        Its mean is the mean over critics.
        """
        members = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), self)
        shape = members.value.shape[:-1]
        return members.mix(jnp.full(shape, 1 / shape[-1]))

    def truncate(self, share: float) -> Particles:
        """The distribution without its highest values, of probability `share` in total.

        The other probabilities are divided by 1 − `share`. The values of the result are
        sorted in increasing order.
        """
        operands = [jnp.asarray(leaf) for leaf in self]
        value, probability = jax.lax.sort(operands, num_keys=1)
        below = jnp.cumsum(probability, axis=-1) - probability
        rest = jnp.clip(1 - share - below, 0, probability)
        return Particles(value, rest / (1 - share))


@runtime_checkable
class Prediction(Protocol):
    """The return that a head predicts; each of its arrays is `[..., K]`.

    It may also have `divergence`, with the parameters of `loss`: the loss minus the
    minimum that the target allows. Without it the minimum is 0.
    """

    def particles(self, transform: Transform = IDENTITY) -> Particles:
        """The predicted returns, with `transform` inverted."""
        ...

    def error(self, target: Particles, transform: Transform = IDENTITY) -> Values:
        """The mean of the target minus that of the prediction, under `transform`."""
        ...

    def loss(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """The loss against the target `[..., K′]`, without its gradient.

        `loss` is an elementwise function of errors, if the prediction uses one.
        """
        ...


class Scalar(NamedTuple):
    """The mean only, on the transformed scale: K is 1."""

    value: Float[Array, "*batch 1"]

    def particles(self, transform: Transform = IDENTITY) -> Particles:
        """One particle, with probability 1."""
        return Particles(transform.inverse(self.value), jnp.ones_like(self.value))

    def error(self, target: Particles, transform: Transform = IDENTITY) -> Values:
        """h(E[Y]) − z."""
        return transform.apply(target.mean()) - self.value[..., 0]

    def loss(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """L(h(E[Y]) − z)."""
        return loss(self.error(jax.lax.stop_gradient(target), transform))


class Categorical(NamedTuple):
    """The probabilities of K fixed atoms (Bellemare et al., 2017).

    https://arxiv.org/abs/1707.06887. The atoms are equally spaced and increasing.
    """

    logits: Float[Array, "*batch K"]
    atoms: Float[Array, "*batch K"]

    def particles(self, transform: Transform = IDENTITY) -> Particles:
        """The atoms with their probabilities."""
        return Particles(transform.inverse(self.atoms), jax.nn.softmax(self.logits))

    def error(self, target: Particles, transform: Transform = IDENTITY) -> Values:
        """E[h(Y)] − E[Z]."""
        return _transform_particles(transform, target).mean() - self.particles().mean()

    def loss(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """The cross-entropy −Σ Φ(h(Y))ᵢ log pᵢ, where Φ projects onto the atoms.

        The projection splits each particle between its two nearest atoms, which keeps
        its mean. Particles outside the support go to its ends. `loss` is not used.
        """
        labels = jax.lax.stop_gradient(self.project(target, transform))
        return optax.softmax_cross_entropy(self.logits, labels)

    def divergence(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """D(Φ(h(Y)) ‖ p): the cross-entropy minus the entropy of the target."""
        labels = self.project(target, transform)
        return optax.kl_divergence(jax.nn.log_softmax(self.logits), labels)

    def project(self, target: Particles, transform: Transform) -> Values:
        """Φ(h(Y)): the probabilities of the target on the atoms, `[..., K]`."""
        value, probability = _transform_particles(transform, target)
        return project_probabilities(value, probability, self.atoms)


class Quantiles(NamedTuple):
    """Quantiles of the return at the given fractions.

    The fractions are fixed (Dabney et al., 2018a, https://arxiv.org/abs/1710.10044) or
    sampled (implicit: Dabney et al., 2018b, https://arxiv.org/abs/1806.06923).
    """

    values: Float[Array, "*batch K"]
    fractions: Float[Array, "*batch K"]

    def particles(self, transform: Transform = IDENTITY) -> Particles:
        """The quantiles, with equal probabilities."""
        value = transform.inverse(self.values)
        return Particles(value, jnp.full_like(value, 1 / value.shape[-1]))

    def error(self, target: Particles, transform: Transform = IDENTITY) -> Values:
        """E[h(Y)] − E[Z]."""
        return _transform_particles(transform, target).mean() - jnp.mean(
            self.values, axis=-1
        )

    def loss(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """Quantile regression: Σᵢ E[|τᵢ − 1[u < 0]| L(u)] with u = h(Y) − θᵢ.

        With the Huber loss for L this is the quantile Huber loss.
        """
        # Not `rlax.quantile_regression_loss`: it gives all target samples the same
        # probability, and knows only |u| and the Huber loss.
        transformed = jax.lax.stop_gradient(_transform_particles(transform, target))
        error = transformed.value[..., None, :] - self.values[..., :, None]
        weight = jnp.abs(self.fractions[..., :, None] - (error < 0))
        losses = weight * loss(error) * transformed.probability[..., None, :]
        return jnp.sum(losses, axis=(-2, -1))


class AveragedQuantiles(Quantiles):
    """Quantiles whose loss is the mean over them, not the sum, as in TQC."""

    def loss(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """Quantile regression: the sum over quantiles, divided by their number."""
        return super().loss(target, loss, transform) / self.values.shape[-1]


class MaskedPrediction(NamedTuple):
    """A prediction for each action, with a mask of illegal actions.

    Policies and targets see the lowest value for illegal actions. Errors and losses are
    those of the prediction without the mask.
    """

    prediction: Any
    is_allowed: Bool[Array, "*batch 1"]

    def particles(self, transform: Transform = IDENTITY) -> Particles:
        """The particles, with masked values for illegal actions."""
        particles = self.prediction.particles(transform)
        return particles._replace(value=mask_outputs(particles.value, self.is_allowed))

    def error(self, target: Particles, transform: Transform = IDENTITY) -> Values:
        """The error of the prediction without the mask."""
        return self.prediction.error(target, transform)

    def loss(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """The loss of the prediction without the mask."""
        return self.prediction.loss(target, loss, transform)

    def divergence(
        self, target: Particles, loss: Elementwise, transform: Transform = IDENTITY
    ) -> Values:
        """The divergence of the prediction without the mask."""
        return divergence(self.prediction, target, loss, transform)


def average_quantiles(prediction: Any) -> Any:
    """The prediction, with the mean over its quantiles as its loss, if it has any."""
    if isinstance(prediction, MaskedPrediction):
        return prediction._replace(prediction=average_quantiles(prediction.prediction))
    is_quantiles = isinstance(prediction, Quantiles)
    return AveragedQuantiles(*prediction) if is_quantiles else prediction


def divergence(
    prediction: Prediction,
    target: Particles,
    loss: Elementwise,
    transform: Transform = IDENTITY,
) -> Values:
    """How far a prediction is from the target: its loss minus the possible minimum."""
    function = getattr(prediction, "divergence", prediction.loss)
    return function(target, loss, transform)


def centre_prediction(prediction: Any, mask: Array) -> Any:
    """Centres the prediction of a dueling head, see `centre_advantages`.

    Its first field is the sum of value and advantages, `[..., A, K]`.
    """
    name = prediction._fields[0]
    values = centre_advantages(getattr(prediction, name), mask[..., None], axis=-2)
    return prediction._replace(**{name: values})


def mask_prediction(prediction: Any, mask: Array) -> MaskedPrediction:
    """Masks a prediction `[..., K]`; `mask` lacks K, and may lack leading axes."""
    shape = jax.tree.leaves(prediction)[0].shape[:-1]
    return MaskedPrediction(prediction, jnp.broadcast_to(mask, shape)[..., None])


def _transform_particles(transform: Transform, target: Particles) -> Particles:
    return target._replace(value=transform.apply(target.value))


def index_actions(tree: ArrayTree, index: Int[Array, "..."]) -> ArrayTree:
    """Selects actions by index `[...]`: leaves `[..., A, K] -> [..., K]`.

    The index may lack leading axes of a leaf.
    """
    return jax.tree.map(lambda leaf: select_index(leaf, index[..., None], -2), tree)
