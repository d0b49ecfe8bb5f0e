"""Distribution: the common interface of all families of distributions."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Shaped

from rlcli.types import Array, ArrayTree, Key

Shape = tuple[int, ...]
Parameters: TypeAlias = Float[Array, "*batch size"]  # of a family, any real numbers
PerSample: TypeAlias = Float[Array, "*batch"]  # one number per distribution


class Distribution(NamedTuple):
    """A family of distributions.

    A variable `x` is `[..., *shape]` with the shape of the space, or a tuple or dict of
    such arrays. `sample` takes noise that does not depend on parameters, so that noise
    can be drawn in advance and gradients flow through continuous samples.
    """

    name: str
    size: int  # parameters of one distribution
    draw: Callable[[Key, int], ArrayTree]  # (key, batch) -> noise
    sample: Callable[[Parameters, ArrayTree], ArrayTree]  # (parameters, noise) -> x
    mode: Callable[[Parameters], ArrayTree]
    # (parameters, x), which broadcast
    log_prob: Callable[[Parameters, ArrayTree], Float[Array, "..."]]
    entropy: Callable[[Parameters], PerSample]
    kl: Callable[[Parameters, Parameters], PerSample]  # (p, q) -> E_p[log p − log q]
    mean: Callable[[Parameters], ArrayTree]  # of x, in float32
    # (parameters, noise) -> the reparameterized sample x and log p(x), with exact
    # gradients (Kingma & Welling, 2013, https://arxiv.org/abs/1312.6114); None: samples
    # have no gradients
    differentiable: (
        Callable[[Parameters, ArrayTree], tuple[ArrayTree, PerSample]] | None
    ) = None
    # Indices of parameters whose exponentials are unbounded scales: they are learned
    # without the observation, which may be large.
    log_scales: tuple[int, ...] = ()


class Event(NamedTuple):
    """One element of a space, an array of a shape, and its entries as a vector."""

    shape: Shape

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(np.prod(self.shape, dtype=int))

    def unflatten(self, flat: Shaped[Array, "*batch size"]) -> Shaped[Array, "..."]:
        """Reshapes `[..., size]` to `[..., *shape]`."""
        return flat.reshape(flat.shape[:-1] + self.shape)

    def flatten(self, x: Shaped[Array, "..."]) -> Shaped[Array, "*batch size"]:
        """Reshapes `[..., *shape]` to `[..., size]`."""
        return x.reshape((*x.shape[: x.ndim - len(self.shape)], self.size))
