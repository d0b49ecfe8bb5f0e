"""Protocol: the conditions under which results of runs can be compared."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlcli.errors import RlcliError
from rlcli.results.curves import Seed
from rlcli.results.groups import Member
from rlcli.runs.differences import find_differences
from rlcli.runs.formatting import format_value

_TOLERANCE = 0.02  # of the last step: runs end with a whole unroll
_LISTED = 2  # differences in a message; with `--allow-differences` all are notes


def find_recipe_differences(
    members: Sequence[Member], evaluation: Sequence[str]
) -> list[str]:
    """How the protocols in the recipes of one environment differ, one line each.

    `evaluation`: the options of evaluations on which the results depend.
    """
    if not members:
        return []
    first, protocol = members[0], _protocol(members[0], evaluation)
    found: dict[str, str] = {}  # by option: one example is enough
    for member in members[1:]:
        pairs = find_differences(protocol, _protocol(member, evaluation))
        for key, (one, other) in pairs.items():
            if key == "train.evaluate.every" and _are_close(one, other):
                continue  # the default depends on the unroll
            text = f"`{key}` is {format_value(one)} in `{first.folder}`, and "
            text += f"{format_value(other)} in `{member.folder}`"
            found.setdefault(key, text)
    return [*found.values()]


def _are_close(one: Any, other: Any) -> bool:
    """Whether two periods differ only by parts of an unroll."""
    if not (isinstance(one, int) and isinstance(other, int)):
        return False
    return abs(one - other) <= _TOLERANCE * max(one, other)


def find_early_ends(seeds: Sequence[Seed]) -> list[str]:
    """The seed that ends first, if it ends before the others, as a line."""
    if not seeds:
        return []
    first = min(seeds, key=lambda seed: seed.x[-1])
    last = max(seeds, key=lambda seed: seed.x[-1])
    if first.x[-1] >= (1 - _TOLERANCE) * last.x[-1]:
        return []
    return [
        f"the last result of `{first.member.folder}` is at step {first.x[-1]:,.0f}, "
        f"and that of `{last.member.folder}` at step {last.x[-1]:,.0f}"
    ]


def check_protocol(
    differences: Mapping[str, Sequence[str]], notes: list[str], allow: bool
) -> None:
    """An error that names the first differences, or notes of all if `allow`."""
    lines = [
        f"{environment}: {line}"
        for environment, found in differences.items()
        for line in found
    ]
    if allow:
        notes += lines
    elif lines:
        more = len(lines) - _LISTED
        shown = lines[:_LISTED] + ([f"and {more} more"] if more > 0 else [])
        raise RlcliError(
            "the runs cannot be compared, because their settings differ: "
            + "; ".join(shown),
            "leave some runs out, or compare them anyway with `--allow-differences`, "
            "which prints all differences",
        )


def _protocol(member: Member, evaluation: Sequence[str]) -> dict[str, Any]:
    """The options of a recipe that must be equal."""
    environment = member.recipe.get("environment")
    options = dict(environment) if isinstance(environment, Mapping) else {}
    options.pop("num_envs", None)  # belongs to the algorithm
    train = member.recipe.get("train")
    train = train if isinstance(train, Mapping) else {}
    evaluate = train.get("evaluate")
    if isinstance(evaluate, Mapping) or not evaluation:
        evaluate = {key: (evaluate or {}).get(key) for key in evaluation}
    return {
        "environment": options,
        "train": {"steps": train.get("steps"), "evaluate": evaluate},
    }
