"""Signs: what is often wrong where an agent does not learn, in sentences.

The thresholds are coarse: a sign is a place to look at, not a fault.
"""

from collections.abc import Iterator, Mapping

from rlcli.distributions.action_masks import MASK
from rlcli.evaluation.inspection import inspection_records as records
from rlcli.runs.formatting import format_number

_MOST_DEAD = 0.5  # of the units of a layer
_MOST_SATURATED = 0.5  # of the outputs of a tanh
_LARGEST_CHANGE = 0.1  # of the norm of a layer, in one gradient step
_SMALLEST_CHANGE = 1e-7
_ONE_ACTION = 0.99
_LARGEST_OBSERVATION = 100.0  # mean or standard deviation
_LARGEST_TARGET = 10.0  # in units of the estimates, or of 1
_IMAGE_AXES = 5  # [T, B, H, W, C]: networks scale the bytes of images


def find_signs(found: records.Inspection) -> list[str]:
    """The signs of an inspection."""
    arrays = {each.name: each for each in found.batch}
    signs = [
        f"`{each.name}` of the batch is not finite"
        for each in found.batch
        if not each.finite
    ]
    signs += filter(None, map(_sign_of_observation, found.batch))
    reward = arrays["reward"]
    # Equal rewards can tell actions apart by how long an episode lasts.
    if reward.min == reward.max and (reward.min == 0 or arrays["discount"].min > 0):
        value = format_number(reward.min)
        signs.append(
            f"every reward of the batch is {value}: nothing tells actions apart"
        )
    if arrays["last"].max == 0 and found.replay and found.replay.episodes == 0:
        signs.append("no episode ends in the batch or in the replay")
    weight = arrays["weight"]
    if weight.max == 0:
        signs.append("every weight of the batch is 0: the update learns nothing")
    advantage = arrays.get("advantage")
    if advantage and advantage.std == 0:
        signs.append(
            "every advantage of the batch is equal: the policy has no gradient"
        )
    signs += _signs_of_target(arrays)
    if found.replay and found.replay.rewarded == 0:
        signs.append("every reward in the replay is 0: the agent has found none")
    if found.layers and not any(layer.gradient for layer in found.layers):
        signs.append("no parameter has a gradient: the losses of the batch are flat")
    elif found.layers and not any(layer.change for layer in found.layers):
        signs.append(
            "the optimizer changes no parameter: the learning rate is 0 at this step, "
            "or everything is frozen"
        )
    else:
        signs += filter(None, map(_sign_of_layer, found.layers))
    signs += filter(None, map(_sign_of_activation, found.activations))
    signs += [
        f"action {each.action} is {each.batch:.0%} of the batch"
        for each in found.actions
        if each.batch > _ONE_ACTION and len(found.actions) > 1
    ]
    if found.value is not None:
        signs += _signs_of_value(found.value)
    return signs


def _sign_of_observation(array: records.ArrayRecord) -> str:
    is_read = array.name.split("/")[0] == "obs" and not array.name.endswith(MASK)
    if not is_read or len(array.shape) >= _IMAGE_AXES:
        return ""
    if array.constant:
        return f"`{array.name}` is the same in every row of the batch"
    if max(abs(array.mean), array.std) > _LARGEST_OBSERVATION:
        mean, std = map(format_number, (array.mean, array.std))
        return f"`{array.name}` has mean {mean} and standard deviation {std}: scale it"
    return ""


def _signs_of_target(arrays: Mapping[str, records.ArrayRecord]) -> Iterator[str]:
    """A sign if targets are much larger than what is to equal them."""
    if (target := arrays.get("target")) is None:
        return
    for name in ("q", "value"):
        if (estimate := arrays.get(name)) is None:
            continue
        largest = max(1.0, abs(estimate.min), abs(estimate.max))
        if max(abs(target.min), abs(target.max)) > _LARGEST_TARGET * largest:
            goal, value = map(format_number, (target.mean, estimate.mean))
            yield f"`target` is {goal} on average, but `{name}` is {value}"


def _sign_of_layer(layer: records.LayerRecord) -> str:
    if layer.gradient == 0:
        return f"`{layer.name}` has no gradient"
    if layer.norm == 0 or not layer.parameters:
        return ""
    ratio = layer.change / layer.norm
    if ratio > _LARGEST_CHANGE:
        return f"`{layer.name}` changes by {ratio:.0%} of its norm in one gradient step"
    if ratio < _SMALLEST_CHANGE:
        return f"`{layer.name}` changes by {ratio:.0e} of its norm: hardly at all"
    return ""


def _sign_of_activation(found: records.ActivationRecord) -> str:
    place = f"{found.activation} after `{found.layer}` of `{found.function}`"
    if found.dead > _MOST_DEAD:
        return f"{found.dead:.0%} of {found.units} units are dead: {place}"
    if found.saturated is not None and found.saturated > _MOST_SATURATED:
        return f"{found.saturated:.0%} of outputs are saturated: {place}"
    return ""


def _signs_of_value(value: records.ValueRecord) -> Iterator[str]:
    explained = value.explained_variance
    if explained is not None and explained < 0:
        yield (
            f"values explain none of the variance of returns ({explained:.2g}): the "
            "critic does not predict what the policy gets"
        )
    spread = max((abs(each.result) for each in value.bins), default=0.0)
    if value.value - value.result > max(spread, 1e-6):
        yield (
            f"values overestimate: {format_number(value.value)} on average, against "
            f"returns of {format_number(value.result)}"
        )
