"""Mixed batches: some rows of a replay's own steps, the others of a data set."""

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge, Le
from jaxtyping import Float, Int

from rlcli.errors import RlcliError
from rlcli.replays.dataset import dataset
from rlcli.types import Array, ArrayTree, Key, Replay, Transition

Fraction = Annotated[float, Ge(0.0), Le(1.0), "structural"]  # of a batch


def split_batch(
    batch_size: int, prefill: str | None, fraction: float | None
) -> tuple[int, int]:
    """The rows of a batch from the steps of the run, and from those of `prefill`."""
    if fraction is None:
        return batch_size, 0
    if prefill is None:
        raise RlcliError(
            "`prefill_fraction` needs the steps of a data set",
            "for example `prefill: FILE.npz`, with a file of `rlcli collect RUN`",
        )
    rows = round(fraction * batch_size)
    if not 0 < rows < batch_size:
        raise RlcliError(
            f"`prefill_fraction: {fraction:g}` of a batch of {batch_size} is {rows}",
            "choose a fraction with rows of both kinds; replay `dataset` has no others",
        )
    return batch_size - rows, rows


def mix_dataset(replay: Replay, window: int, prefill: str | None, rows: int) -> Replay:
    """The replay, whose batches have `rows` more rows, drawn from a data set."""
    if not rows or prefill is None:
        return replay
    data = dataset(window, 1, 1, path=prefill, batch_size=rows)
    own = replay.traits.batch_size

    def draw(key: Key) -> tuple[ArrayTree, ArrayTree]:
        own_key, data_key = jax.random.split(key)
        return replay.draw(own_key), data.draw(data_key)

    def sample(
        source: tuple[ArrayTree, Transition],
        count: Int[Array, ""],
        noise: tuple[ArrayTree, ArrayTree],
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        state, steps = source
        ours, weight, index = replay.sample(state, count, noise[0])
        theirs, data_weight, _ = data.sample(steps, count, noise[1])
        batch, weight = jax.tree.map(
            lambda a, b: jnp.concatenate([a, jnp.asarray(b, a.dtype)], axis=1),
            (ours, weight),
            (theirs, data_weight),
        )
        return batch, weight, index

    def reweigh(state: ArrayTree, index: ArrayTree, priority: Array) -> ArrayTree:
        return replay.reweigh(state, index, priority[..., :own])

    traits = replay.traits._replace(
        batch_size=own + rows, dataset=data.traits.dataset, keeps_dataset=True
    )
    return replay._replace(draw=draw, sample=sample, reweigh=reweigh, traits=traits)
