"""Devices: how those of a run divide its progress.

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
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlcli.loop.episode_statistics import EpisodeStatistics
from rlcli.loop.log import log_points
from rlcli.loop.progress import Loop, Progress, Setup
from rlcli.loop.seeds import drop_padding, map_leaves, pad_seeds, resize_seeds
from rlcli.types import Array, ArrayTree
from rlcli.xla import data_axis, processes
from rlcli.xla.temporaries import temporary_bytes

SEEDS = "seeds"  # the name of the axis of seeds in meshes


class Devices(NamedTuple):
    """The devices of a program: groups, each with some of the seeds.

    `axes` are the axes of the seeds in a tree, None for arrays that every device has,
    or partition specs. The devices need not exist before arrays are placed on them.
    """

    groups: int
    data_parallel: int = 1  # devices of a group: they share the environments

    @property
    def is_single(self) -> bool:
        """Whether there is only one device, which needs no mesh.

        A mesh of one device would be part of every array's type: what is traced with
        shapes would be traced again with arrays.
        """
        return self.groups * self.data_parallel == 1

    def shard(self, function: Callable, inputs: Any, outputs: Any) -> Callable:
        """`shard_map` over the devices, given the axes of arguments and results."""
        if self.is_single:
            return function

        @functools.wraps(function)
        def run(*arguments: Any) -> Any:  # only here the devices have to exist
            sharded = jax.shard_map(
                function,
                mesh=self._mesh(),
                in_specs=_partition_specs(inputs),
                out_specs=_partition_specs(outputs),
                check_vma=False,
            )
            return sharded(*arguments)

        return run

    def shardings(self, tree: ArrayTree, axes: Any) -> ArrayTree:
        """The sharding of every array of a tree; None for all on a single device."""
        if self.is_single:
            return jax.tree.map(lambda leaf: None, tree)
        mesh = self._mesh()
        return map_leaves(
            lambda axis, leaf: NamedSharding(mesh, _partition_spec(axis)), axes, tree
        )

    def shapes(self, shapes: ArrayTree, axes: Any) -> ArrayTree:
        """Shapes with the shardings of the arrays that a sharded function returns."""
        if self.is_single:
            return shapes
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=sharding
            ),
            shapes,
            self.shardings(shapes, axes),
        )

    def _mesh(self) -> Mesh:
        if self.data_parallel == 1:
            return Mesh(np.array(jax.local_devices()[: self.groups]), (SEEDS,))
        # Equal in all processes.
        share = self.groups * self.data_parallel // jax.process_count()
        grid = [
            device
            for process in range(jax.process_count())
            for device in jax.local_devices(process)[:share]
        ]
        return Mesh(np.array(grid).reshape(self), (SEEDS, data_axis.AXIS))


def _partition_specs(axes: Any) -> Any:
    return jax.tree.map(_partition_spec, axes, is_leaf=lambda axis: axis is None)


def _partition_spec(axis: int | PartitionSpec | None) -> PartitionSpec:
    if isinstance(axis, PartitionSpec):
        return axis
    return PartitionSpec() if axis is None else PartitionSpec(SEEDS)


def divide(
    setup: Setup,
    begin_share: Callable[[Array, Array], Progress],
    advance_share: Callable[[Progress, Array], tuple[Progress, Any]],
) -> Loop:
    """The loop on all devices of a run, from the functions of one device.

    `begin_share(seeds, numbers) -> progress`, and `advance_share(progress, counts) ->
    progress, log`. The arrays of a progress have an entry for each padded seed. `save`
    removes the padding, and `restore` adds it.
    """
    division = _Division(setup, begin_share, advance_share)
    return Loop(
        begin=division.begin,
        advance=lambda progress, counts: division.advance(progress, log_points(counts)),
        save=division.save,
        restore=division.restore,
        shapes=division.shapes,
        close=lambda progress: None,
        temporary_bytes=functools.cache(division.temporary_bytes),
        hlo=lambda: division.trace().lower().compile().as_text() or "",
    )


class _Division:
    """The functions of the loop, see `divide`."""

    def __init__(
        self,
        setup: Setup,
        begin_share: Callable[[Array, Array], Progress],
        advance_share: Callable[[Progress, Array], tuple[Progress, Any]],
    ) -> None:
        self._setup, self._begin_share = setup, begin_share
        self._devices = Devices(setup.devices, setup.data_parallel)
        self._arguments = setup.seed_array, setup.numbers_array
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
        shard, specs = self._devices.shard, self._specs
        self._begin = jax.jit(shard(begin, (0, setup.axes.numbers), specs))
        self.advance = jax.jit(
            shard(advance, (specs, None), (specs, 0)), donate_argnums=0
        )

    def begin(self) -> Progress:
        """The progress at the start."""
        return self._begin(*self._arguments)._replace(data=self._place_data())

    def save(self, progress: Progress) -> ArrayTree:
        """The arrays of a checkpoint."""
        setup, progress = self._setup, progress._replace(numbers=(), data=())
        if len(setup.padded_seeds) == len(setup.seeds) and processes.count() == 1:
            return progress
        return drop_padding(len(setup.seeds), processes.fetch(progress), setup.axes)

    def restore(self, arrays: ArrayTree) -> tuple[Progress, str]:
        """The progress from the arrays of a checkpoint, and no message.

        It is sharded as `advance` returns it, so that `advance` is not compiled twice.
        """
        setup, (_, numbers) = self._setup, self._arguments
        arrays = arrays._replace(numbers=np.asarray(numbers))
        padded = pad_seeds(len(setup.padded_seeds), arrays, setup.axes)
        shardings = self._devices.shardings(padded, self._specs)
        progress = jax.device_put(padded, shardings)
        return progress._replace(data=self._place_data()), ""

    def shapes(self) -> Progress:
        """The shapes of the arrays of a checkpoint."""
        shapes = self._padded_shapes._replace(numbers=())
        return resize_seeds(len(self._setup.seeds), shapes, self._setup.axes)

    def temporary_bytes(self) -> int:
        """A lower bound on the bytes of temporary arrays, over all devices."""
        return self._setup.all_devices * temporary_bytes(self.trace().jaxpr)

    def trace(self) -> jax.stages.Traced:
        """Traces `advance` with shapes; cached by JAX."""
        data = self._devices.shapes(jax.eval_shape(self._setup.data), None)
        progress = self._devices.shapes(self._padded_shapes, self._specs)
        return self.advance.trace(progress._replace(data=data), log_points(1))

    def _place_data(self) -> ArrayTree:
        data = self._setup.data()
        return jax.device_put(data, self._devices.shardings(data, None))

    @functools.cached_property
    def _padded_shapes(self) -> Progress:
        """The shapes of the progress. They do not depend on which devices there are."""
        if self._setup.data_parallel == 1:
            return jax.eval_shape(self._begin, *self._arguments)
        sizes = {
            SEEDS: self._devices.groups,
            data_axis.AXIS: self._devices.data_parallel,
        }

        def enlarge(spec: PartitionSpec, leaf: Any) -> Any:
            counts = [sizes.get(name, 1) for name in spec]
            counts += [1] * (leaf.ndim - len(counts))
            shape = [size * n for size, n in zip(leaf.shape, counts, strict=True)]
            return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)

        shapes = jax.eval_shape(self._expand_scalars, self._share_shapes)
        return map_leaves(enlarge, self._specs, shapes)

    @functools.cached_property
    def _share_shapes(self) -> Progress:
        """The shapes of one device's progress, without the axis of its scalars."""
        seeds, numbers = self._arguments
        share = seeds[: len(seeds) // self._devices.groups]
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
