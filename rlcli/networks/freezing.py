"""Freezing: parts of networks that do not learn (`freeze` in a recipe).

Gradients stop at frozen parameters, so norms and clipping do not count them, and their
running statistics stay as they are. `updaters.optimizers.partition_by_group` gives them
no update, so no weight decay moves them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from rlcli.networks.functions import statistics_group
from rlcli.types import Array, Network, Params
from rlcli.xla.control_flow import tree_select
from rlcli.xla.tree_paths import leaves_by_path

TORSO = "torso"
# By group, or `GROUP/torso`: whether it is frozen now; True: for the whole run.
Frozen: TypeAlias = Mapping[str, Bool[Array, ""] | bool]


def torso_paths(networks: Iterable[Network]) -> set[str]:
    """The tree paths of torsos and memories, `GROUP/MODULE/NAME`."""
    return {
        f"{group}/{path}"
        for network in networks
        for group, paths in network.torso().items()
        for path in paths
    }


def frozen_part(path: str, names: Collection[str], torso: Collection[str]) -> str:
    """The part among `names` that a parameter belongs to; "" if there is none."""
    group = path.partition("/")[0]
    if f"{group}/{TORSO}" in names and path in torso:
        return f"{group}/{TORSO}"
    return group if group in names else ""


def freeze_network(network: Network, frozen: Frozen) -> Network:
    """The network whose losses have no gradients for its frozen parameters."""
    if not frozen:
        return network

    def stop(params: Params) -> Params:
        torso = torso_paths([network])
        leaves = []
        for path, leaf in leaves_by_path(params).items():
            is_frozen = frozen.get(frozen_part(path, frozen, torso), False)
            fixed = leaf if is_frozen is False else jax.lax.stop_gradient(leaf)
            is_always = isinstance(is_frozen, bool)
            leaves.append(fixed if is_always else jnp.where(is_frozen, fixed, leaf))
        return jax.tree.unflatten(jax.tree.structure(params), leaves)

    def with_stop(function: Callable) -> Callable:
        return lambda params, *inputs: function(stop(params), *inputs)

    def learn(params: Params, *inputs: Any) -> tuple[Any, Params]:
        assert network.learn is not None  # else this function is not offered
        outputs, statistics = network.learn(stop(params), *inputs)
        for group in statistics:
            name = group.removesuffix(statistics_group(""))
            is_frozen = frozen.get(f"{name}/{TORSO}", frozen.get(name, False))
            fixed = network.apply(stop(params), *inputs)[0], {group: params[group]}
            learned = outputs, {group: statistics[group]}
            chosen = tree_select(jnp.asarray(is_frozen), fixed, learned)
            outputs, statistics = chosen[0], {**statistics, **chosen[1]}
        return outputs, statistics

    shared = network.shared
    return network._replace(
        apply=with_stop(network.apply),
        learn=learn if network.learn is not None else None,
        shared=shared
        and shared._replace(
            features=with_stop(shared.features), read=with_stop(shared.read)
        ),
    )
