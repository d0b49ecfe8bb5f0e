"""Data parallelism: how the devices of a run divide its progress.

Every array of `Progress` is one of the whole agent: its environments are in order,
whatever device has them. The parts declare which arrays the devices of one agent divide
(`AgentTraits.environment_axes`); for environments, policies, unrolls and statistics the
axis follows from their contracts.

The mesh has two axes, `seeds` and `data`: each group of N devices shares the agents of
its seeds. The noise of an environment is that of its index among all environments; each
device has its own key for batches. The state of a replay belongs to its device, so
another number of devices needs `Replay.redivide`. A condition around a collective
operation must have the same value on all devices. With several processes every process
holds the arrays and runs the same chunks (`xla.processes` agrees on lengths, signals
and checkpoints), and the first one writes the run.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

from rlcli.loop.episode_statistics import EpisodeStatistics
from rlcli.loop.progress import Progress, Setup
from rlcli.loop.seeds import (
    SEEDS,
    map_leaves,
    seed_shardings,
    shapes_on_devices,
    shard_seeds,
)
from rlcli.types import Array
from rlcli.xla import data_axis


class Division:
    """The functions of a loop on all devices of a run.

    `begin_share(seeds, numbers) -> progress` and `advance_share(progress, counts) ->
    progress, log` are those of one device. `arguments` are those of `begin`.
    """

    def __init__(
        self,
        setup: Setup,
        begin_share: Callable[[Array, Array], Progress],
        advance_share: Callable[[Progress, Array], tuple[Progress, Any]],
        arguments: tuple[Array, Array],
    ) -> None:
        self._devices = setup.devices, setup.data_parallel
        self._begin_share, self._arguments = begin_share, arguments
        # A prefix of the progress: axes of seeds, or partition specs.
        self._specs = setup.axes
        begin, advance = begin_share, advance_share
        if setup.data_parallel > 1:
            self._axes = _environment_axes(setup)
            self._specs = _progress_specs(setup, self._axes)

            # A scalar that each device has for itself needs an axis that the devices
            # divide: between chunks it is `[S, 1]` on each device, and `[S]` inside.

            def begin_expanded(seeds: Array, numbers: Array) -> Progress:
                return self._expand_scalars(begin_share(seeds, numbers))

            def advance_expanded(progress: Progress, counts: Array) -> Any:
                scalars = self._squeeze_scalars(progress)
                progress, log = advance_share(scalars, counts)
                return self._expand_scalars(progress), log

            begin, advance = begin_expanded, advance_expanded
        self._begin = jax.jit(self._shard(begin, (0, setup.axes.numbers), self._specs))
        self.advance = jax.jit(
            self._shard(advance, (self._specs, None), (self._specs, 0)),
            donate_argnums=0,
        )

    def begin(self) -> Progress:
        """The progress at the start."""
        return self._begin(*self._arguments)

    @functools.cached_property
    def shapes(self) -> Progress:
        """The shapes of the progress. They do not depend on which devices there are."""
        devices, data_parallel = self._devices
        if data_parallel == 1:
            return jax.eval_shape(self._begin, *self._arguments)
        sizes = {SEEDS: devices, data_axis.AXIS: data_parallel}

        def enlarge(spec: PartitionSpec, leaf: Any) -> Any:
            counts = [sizes.get(name, 1) for name in spec]
            counts += [1] * (leaf.ndim - len(counts))
            shape = [size * n for size, n in zip(leaf.shape, counts, strict=True)]
            return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)

        shapes = jax.eval_shape(self._expand_scalars, self._share_shapes)
        return map_leaves(enlarge, self._specs, shapes)

    def on_devices(self, shapes: Progress) -> Progress:
        """The shapes with the shardings of the arrays that `advance` returns."""
        return shapes_on_devices(
            self._devices[0], shapes, self._specs, self._devices[1]
        )

    def put(self, arrays: Progress) -> Progress:
        """Arrays of the host on the devices, sharded as those `advance` returns."""
        shardings = seed_shardings(
            self._devices[0], arrays, self._specs, self._devices[1]
        )
        return jax.device_put(arrays, shardings)

    def _shard(self, function: Callable, inputs: Any, outputs: Any) -> Callable:
        devices, data_parallel = self._devices

        @functools.wraps(function)
        def run(*arguments: Any) -> Any:  # only here the devices have to exist
            shard = shard_seeds(function, devices, inputs, outputs, data_parallel)
            return shard(*arguments)

        return run

    @functools.cached_property
    def _share_shapes(self) -> Progress:
        """The shapes of one device's progress, without the axis of its scalars."""
        seeds, numbers = self._arguments
        share = seeds[: len(seeds) // self._devices[0]]
        return jax.eval_shape(self._begin_share, share, numbers)

    def _map_scalars(self, function: Callable, progress: Progress) -> Progress:
        return map_leaves(
            lambda axis, shape, leaf: (
                function(leaf) if axis is not None and shape.ndim == 1 else leaf
            ),
            self._axes,
            self._share_shapes,
            progress,
        )

    def _expand_scalars(self, progress: Progress) -> Progress:
        return self._map_scalars(lambda leaf: leaf[:, None], progress)

    def _squeeze_scalars(self, progress: Progress) -> Progress:
        return self._map_scalars(lambda leaf: leaf[:, 0], progress)


def _environment_axes(setup: Setup) -> Any:
    """The axis of environments in the progress of one seed, see `Agent`."""
    nothing = Progress._make([None] * len(Progress._fields))
    statistics = EpisodeStatistics._make([None] * len(EpisodeStatistics._fields))
    return nothing._replace(
        environment=0,
        pending=0,
        policy=0,
        unroll=1,
        agent=setup.agent.traits.environment_axes,
        statistics=statistics._replace(
            running_return=0, running_length=0, running_info=0, running_new=0
        ),
        faults=0,
    )


def _progress_specs(setup: Setup, axes: Any) -> Any:
    """The partition specs of the progress of all seeds."""

    def spec(axis: int | None) -> PartitionSpec:
        divided = () if axis is None else (*[None] * axis, data_axis.AXIS)
        return PartitionSpec(SEEDS, *divided)

    specs = jax.tree.map(spec, axes, is_leaf=lambda axis: axis is None)
    whole = PartitionSpec()
    numbers = PartitionSpec(SEEDS) if setup.has_own_numbers else whole
    return specs._replace(iteration=whole, position=whole, numbers=numbers, data=whole)
