"""Predictions: what a network says of a return, and how far that is from a target.

A prediction is a record of arrays. The last axis of each is the prediction's own, K
long: one number, the logits of atoms, quantiles. The axes in front belong to whoever
asked. What is bootstrapped from is a set of `Particles`, whatever predicted it: so
every rule goes with every head, and neither knows the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from rlcli.action_masks import mask_outputs
from rlcli.types import Array, ArrayTree
from rlcli.xla.indexing import select_index

Loss = Literal["mse", "huber", "logcosh"]
TransformName = Literal["log", "signed_hyperbolic"]

LOSSES: dict[str, Callable[[Array], Array]] = {  # of an error, each on its own
    "mse": optax.squared_error,
    "huber": optax.huber_loss,
    "logcosh": optax.log_cosh,
}


class Transform(NamedTuple):
    """The scale h that values are learnt on, and the way back."""

    apply: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


IDENTITY = Transform(lambda value: value, lambda value: value)


def value_transform(name: TransformName | None) -> Transform:
    """The transform of that name.

        log                  h(x) = sign(x) log(1 + |x|)
        signed_hyperbolic    h(x) = sign(x) (√(1 + |x|) − 1) + 0.001 x

    Large values come near each other on such a scale (Pohlen et al., 2018,
    https://arxiv.org/abs/1805.11593). None: the values as they are.
    """
    if name is None:
        return IDENTITY
    import rlax  # here, since importing it takes most of a second

    pairs = {
        "log": rlax.SIGNED_LOGP1_PAIR,
        "signed_hyperbolic": rlax.SIGNED_HYPERBOLIC_PAIR,
    }
    return Transform(*pairs[name])


class Particles(NamedTuple):
    """A distribution of returns: values and how likely they are, both `[..., K]`."""

    value: Array
    probability: Array

    def mean(self) -> Array:
        """`[...]`."""
        return jnp.sum(self.value * self.probability, axis=-1)


class Prediction(Protocol):
    """What a head says of a return; `[..., K]` each of its arrays."""

    def particles(self, scale: Transform = IDENTITY) -> Particles:
        """The returns that it predicts, as they are: `scale` undone."""
        ...

    def error(self, target: Particles, scale: Transform = IDENTITY) -> Array:
        """Target less prediction, on average and on that scale: `[...]`."""
        ...

    def loss(
        self,
        target: Particles,
        loss: Callable[[Array], Array],
        scale: Transform = IDENTITY,
    ) -> Array:
        """How far it is from the target `[..., K′]`, which has no gradient: `[...]`.

        `loss` is for errors, each on its own, where the prediction has errors.
        """
        ...


class Scalar(NamedTuple):
    """The mean alone, on its scale: K is 1."""

    value: Array

    def particles(self, scale: Transform = IDENTITY) -> Particles:
        """One, which is sure."""
        return Particles(scale.inverse(self.value), jnp.ones_like(self.value))

    def error(self, target: Particles, scale: Transform = IDENTITY) -> Array:
        """h(E[Y]) − z."""
        return scale.apply(target.mean()) - self.value[..., 0]

    def loss(
        self,
        target: Particles,
        loss: Callable[[Array], Array],
        scale: Transform = IDENTITY,
    ) -> Array:
        """L(h(E[Y]) − z)."""
        return loss(self.error(jax.lax.stop_gradient(target), scale))


class Categorical(NamedTuple):
    """How likely each of K fixed atoms is (Bellemare et al., 2017).

    https://arxiv.org/abs/1707.06887. The atoms go up at equal distances.
    """

    logits: Array
    atoms: Array

    def particles(self, scale: Transform = IDENTITY) -> Particles:
        """The atoms."""
        return Particles(scale.inverse(self.atoms), jax.nn.softmax(self.logits))

    def error(self, target: Particles, scale: Transform = IDENTITY) -> Array:
        """E[h(Y)] − E[Z]."""
        return _transform_particles(scale, target).mean() - self.particles().mean()

    def loss(
        self,
        target: Particles,
        loss: Callable[[Array], Array],
        scale: Transform = IDENTITY,
    ) -> Array:
        """The cross-entropy −Σ Φ(h(Y))ᵢ log pᵢ, where Φ projects onto the atoms.

        Each particle is dealt to the two atoms beside it, which keeps its mean; what
        lies beyond the ends goes there. `loss` has nothing to say here.
        """
        del loss
        import rlax  # here, since importing it takes most of a second

        project = jnp.vectorize(
            rlax.categorical_l2_project, signature="(k),(k),(n)->(n)"
        )
        transformed = _transform_particles(scale, target)
        labels = project(transformed.value, transformed.probability, self.atoms)
        return optax.softmax_cross_entropy(self.logits, jax.lax.stop_gradient(labels))


class Quantiles(NamedTuple):
    """The values below which the return stays with those probabilities.

    The fractions are fixed (Dabney et al., 2018a, https://arxiv.org/abs/1710.10044) or
    drawn (implicit: Dabney et al., 2018b, https://arxiv.org/abs/1806.06923).
    """

    values: Array
    fractions: Array

    def particles(self, scale: Transform = IDENTITY) -> Particles:
        """Each quantile, equally likely."""
        value = scale.inverse(self.values)
        return Particles(value, jnp.full_like(value, 1 / value.shape[-1]))

    def error(self, target: Particles, scale: Transform = IDENTITY) -> Array:
        """E[h(Y)] − E[Z]."""
        return _transform_particles(scale, target).mean() - jnp.mean(
            self.values, axis=-1
        )

    def loss(
        self,
        target: Particles,
        loss: Callable[[Array], Array],
        scale: Transform = IDENTITY,
    ) -> Array:
        """Quantile regression: Σᵢ E[|τᵢ − 1[u < 0]| L(u)] with u = h(Y) − θᵢ.

        With the Huber loss for L this is the quantile Huber loss.
        """
        transformed = jax.lax.stop_gradient(_transform_particles(scale, target))
        error = transformed.value[..., None, :] - self.values[..., :, None]
        tilt = jnp.abs(self.fractions[..., :, None] - (error < 0))
        losses = tilt * loss(error) * transformed.probability[..., None, :]
        return jnp.sum(losses, axis=(-2, -1))


class MaskedPrediction(NamedTuple):
    """A prediction of actions, some of which are not allowed.

    These are worth next to nothing to whoever chooses or bootstraps. What is learnt of
    an action that was taken is the prediction's own.
    """

    prediction: Any
    is_allowed: Array  # bool `[..., 1]`

    def particles(self, scale: Transform = IDENTITY) -> Particles:
        """Those of what is allowed."""
        particles = self.prediction.particles(scale)
        return particles._replace(value=mask_outputs(particles.value, self.is_allowed))

    def error(self, target: Particles, scale: Transform = IDENTITY) -> Array:
        """The prediction's."""
        return self.prediction.error(target, scale)

    def loss(
        self,
        target: Particles,
        loss: Callable[[Array], Array],
        scale: Transform = IDENTITY,
    ) -> Array:
        """The prediction's."""
        return self.prediction.loss(target, loss, scale)


def mask_prediction(prediction: Any, mask: Array) -> MaskedPrediction:
    """A prediction `[..., K]` where `mask`, which lacks K and maybe leading axes."""
    shape = jax.tree.leaves(prediction)[0].shape[:-1]
    return MaskedPrediction(prediction, jnp.broadcast_to(mask, shape)[..., None])


def _transform_particles(scale: Transform, target: Particles) -> Particles:
    return target._replace(value=scale.apply(target.value))


def index_actions(tree: ArrayTree, index: Array) -> ArrayTree:
    """Of leaves `[..., A, K]` those of the action with that index `[...]`: `[..., K]`.

    The index may lack the leading axes of a leaf.
    """
    return jax.tree.map(lambda leaf: select_index(leaf, index[..., None], -2), tree)


def min_over_critics(particles: Particles) -> Particles:
    """Of copies `[C, ..., K]` the one with the least mean: `[..., K]`."""
    index = jnp.argmin(particles.mean(), axis=0)[..., None]
    return jax.tree.map(lambda leaf: select_index(leaf, index, 0), particles)


def mix_particles(particles: Particles, probability: Array) -> Particles:
    """The mixture of M distributions `[..., M, K]`, with these probabilities."""
    weight = particles.probability * probability[..., None]
    return Particles(*(_merge_last_axes(leaf) for leaf in (particles.value, weight)))


def _merge_last_axes(leaf: Array) -> Array:
    return leaf.reshape((*leaf.shape[:-2], -1))
