"""Collection: checks the request of `rlcli collect`, before JAX is imported."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlcli.errors import RlcliError
from rlcli.registry.paths import enter
from rlcli.runs.files import check_output
from rlcli.runs.locate import locate_policy, zoo_name

_EPISODES = 100  # by default


class Request(NamedTuple):
    """A checked request."""

    policy: Path  # the policy file
    file: Path  # to write
    episodes: int | None
    steps: int | None
    modes: Mapping[str, bool]  # of acting, other than greedily


def check_collection(
    run: str | Path,
    *,
    output: str | Path | None = None,
    best: bool = False,
    episodes: int | None = None,
    steps: int | None = None,
    modes: Mapping[str, bool],
) -> Request:
    """Refuses what cannot work, before JAX is imported."""
    owner, policy = locate_policy(run, best=best)
    folder = owner.folder if owner else policy.parent
    folder = Path() if zoo_name(policy) else folder
    file = enter(folder / "dataset.npz" if output is None else output)
    check_output(file, "a data set", [".npz"])
    if episodes is not None and steps is not None:
        raise RlcliError(
            "both `episodes` and `steps` are given", "choose one of the two"
        )
    for key, number in {"episodes": episodes, "steps": steps}.items():
        if number is not None and number < 1:
            raise RlcliError(f"`{key}` is {number}, expected at least 1")
    if all(modes.values()):
        names = " and ".join(f"`{name}`" for name in modes)
        raise RlcliError(f"both {names} are given", "choose one of the two")
    if steps is None and episodes is None:
        episodes = _EPISODES
    return Request(policy, file, episodes, steps, modes)
