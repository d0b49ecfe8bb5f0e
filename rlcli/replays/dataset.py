"""Offline replay: the steps of a data set; or batches with rows of both.

Data sets are arguments of the program, as its numbers are (`Progress.data`,
`Clock.data`): one copy for all seeds, not saved, and read only where a program that
learns is traced or started, so that policies act without them. A replay with a
`dataset` gets its steps added before the first unroll. An *offline* replay
(`is_offline`) samples from the data instead of a state and ignores the unrolls; the
loop is the same, but `assembly` gives it an idle environment with the spaces of the
recipe's, which evaluation uses. So an offline run is compiled even if its environment
is not, and an iteration, which counts as always, is only its updates. The steps of a
data set have no extras. Its SHA-256 is part of the name in the resolved recipe.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Le
from jaxtyping import Float, Int, UInt32

from rlcli.errors import RlcliError
from rlcli.registry import register
from rlcli.replays.datasets.names import DataFile, MinariId
from rlcli.replays.datasets.recipe_dataset import Dataset
from rlcli.types import Array, ArrayTree, Count, Key, Replay, ReplayTraits, Transition


@register("replay", offline=True)
def dataset(
    window: int,
    unroll: int,
    num_envs: int,
    *,
    path: DataFile | None = None,
    minari: MinariId | None = None,
    batch_size: Count = 256,
) -> Replay:
    """Offline replay: samples the steps of a data set uniformly, and stores nothing.

    `path` is a file that `rlcli collect` has written, relative to the recipe; `minari`
    the id of a data set of Minari, which needs the extra `minari`. The environment of
    the recipe provides the spaces and the evaluations. It is not stepped while the
    agent learns: with the defaults of `train` and one environment, each of the
    `train.steps` is one update.
    """
    del unroll, num_envs  # nothing is stored
    if (path is None) == (minari is None):
        raise RlcliError(
            "replay `dataset` needs either `path` or `minari`",
            "for example `replay: {name: dataset, path: FILE.npz}`, with a file of "
            "`rlcli collect RUN`",
        )
    source = path or minari or ""

    def draw(key: Key) -> UInt32[Array, "N"]:
        return jax.random.bits(key, (batch_size,))

    def sample(
        data: Transition, count: Int[Array, ""], noise: UInt32[Array, "N"]
    ) -> tuple[Transition, Float[Array, "T N"], ArrayTree]:
        steps = data.reward.shape[0]
        start = (noise % jnp.uint32(steps)).astype(jnp.int32)
        # A window may continue at the first step: the last step ends an episode.
        index = (start + jnp.arange(window)[:, None]) % steps
        rows = jax.tree.map(lambda leaf: leaf[index], data)
        return rows, jnp.ones(index.shape), start

    def contents(data: Transition, count: int, most: int) -> tuple[int, Transition]:
        stored = len(data.reward)
        index = np.linspace(0, stored - 1, min(most, stored)).astype(np.int32)
        return stored, jax.tree.map(lambda leaf: leaf[index], data)

    return Replay(
        init=lambda steps: (),
        draw=draw,
        add=lambda state, steps, count: state,
        sample=sample,
        reweigh=lambda state, index, priority: state,
        traits=ReplayTraits(
            dataset=Dataset.parse(source, is_minari=minari is not None), is_offline=True
        ),
        contents=contents,
    )


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
