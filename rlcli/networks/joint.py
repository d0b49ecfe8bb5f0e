"""Joint application: several functions of the same observations."""

from collections.abc import Mapping

from jaxtyping import Bool

from rlcli.types import Array, ArrayTree, Key, Network, Params


def apply_jointly(
    networks: Mapping[str, Network],
    params: Params,
    key: Key | None,
    inputs: ArrayTree,
    carries: Mapping[str, ArrayTree],
    first: Bool[Array, "T B"] | None,
) -> tuple[dict[str, ArrayTree], dict[str, ArrayTree]]:
    """Outputs and carries of every network, by name, as of `Network.apply`.

    Networks that share a memory have equal carries: they read the same inputs. The
    features of a shared torso are computed once. XLA would merge the forward passes of
    separate calls, but not their backward passes: each would go through the torso,
    which made a gradient step of PPO on MinAtar take 1.5 times as long.
    """
    shared = None
    outputs, new_carries = {}, {}
    for name, network in networks.items():
        if network.shared is None:
            outputs[name], new_carries[name] = network.apply(
                params, key, inputs, carries[name], first
            )
            continue
        if shared is None:
            shared = network.shared.features(params, key, inputs, carries[name], first)
        features, new_carries[name] = shared
        outputs[name] = network.shared.read(params, key, features, inputs)
    return outputs, new_carries
