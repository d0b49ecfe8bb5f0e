"""Sources: the file from which a new run starts (`init` in a recipe), as data.

Its recipe is not loaded and no part of it is built, so nothing of it runs, whatever
code it names. What its agent has learned is found by tree paths: `params/policy/…`,
`optimizer/…` and `statistics/observation/…`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.registry.common_names import find_hint
from rlcli.replays.datasets.dataset_files import file_digest
from rlcli.replays.datasets.names import HASH
from rlcli.runs import snapshots
from rlcli.runs.files import DAMAGES
from rlcli.runs.locate import complete_path, find_shipped_policy, locate_run
from rlcli.runs.snapshot_content import read_content

# The learner is below those that add normalization and intrinsic rewards. Evolution
# strategies have none, but parameters for evaluation.
_LEARNED = re.compile(
    r"learner/(?:learner/)*"
    r"((?:params|target|initial|optimizer|best|statistics/(?:observation|returns))/.+)",
    re.DOTALL,
)
Leaves = Mapping[str, Any]  # arrays or shapes, by tree path
_STEPS = "replay/"  # where the file of a run that began with steps has them
_DAMAGED = "copy the file again, or start from another checkpoint"


class Source(NamedTuple):
    """A checkpoint, a policy, or what another run has started from."""

    file: Path
    sha256: str
    recipe: str  # resolved, as YAML
    data: Mapping[str, Any]  # of the recipe
    seeds: tuple[int, ...]
    steps: tuple[int, ...]  # environment steps of each seed
    learned: Leaves  # `[S, ...]`
    recorded: Leaves  # the steps with which another run began, `[S, N, ...]`
    progress: Leaves  # all arrays of a checkpoint
    sizes: tuple[int, ...]  # the unroll, the environments and devices of a checkpoint


def locate_source(text: str) -> tuple[Path, str]:
    """The file that `init.from` names, and its SHA-256.

    It names a file, a policy of the zoo, or a run: its latest checkpoint. Refuses other
    content than `#sha256=…`.
    """
    name, mark, expected = text.partition(HASH)
    file = _find_file(name)
    digest = file_digest(file)
    if mark and digest != expected:
        raise RlcliError(
            f"`{file}` has changed: its SHA-256 is {digest}, but the recipe names "
            f"`{expected}`",
            f"restore the file, or remove `{HASH}…` from `init.from`",
        )
    return file, digest


def read_source(text: str) -> Source:
    """Reads the file that `init.from` names."""
    file, digest = locate_source(text)
    content = read_content(file)
    data = documents.load_document(content["recipe"], source=str(file)).data
    seeds, steps = tuple(content["seeds"]), tuple(content.get("steps", ()))
    recorded, progress, sizes = {}, content.get("progress", {}), ()
    if "learned" in content:
        learned = content["learned"]
        recorded = below(_STEPS, learned)
    elif "acting" in content:
        acting = content["acting"].items()
        leaves = {path: snapshots.as_float32(leaf) for path, leaf in acting}
        learned = learned_in_policy(leaves, _normalizes(data))
    else:
        try:
            sizes = _read_sizes(data)
            steps = (math.prod(sizes, start=int(progress["iteration"])),) * len(seeds)
        except DAMAGES as error:
            message = f"`{file}` is damaged: it does not say how long it was trained"
            raise RlcliError(message, _DAMAGED) from error
        learned = learned_leaves(below("agent/", progress))
    check_seeds(file, learned, len(seeds))
    return Source(
        file=file,
        sha256=digest,
        recipe=content["recipe"],
        data=data,
        seeds=seeds,
        steps=steps,
        learned=learned,
        recorded=recorded,
        progress=progress,
        sizes=sizes,
    )


def check_seeds(file: Path, leaves: Leaves, seeds: int) -> None:
    """Refuses leaves of a source that have no entry for each of its seeds."""
    for path, leaf in leaves.items():
        if leaf.shape[:1] != (seeds,):
            message = f"`{file}` is damaged: `{path}` has no entry for each seed"
            raise RlcliError(message, _DAMAGED)


def _read_sizes(recipe: Mapping[str, Any]) -> tuple[int, ...]:
    """See `Source.sizes`; one of `files.DAMAGES` if the recipe does not say them."""
    train, num_envs = recipe["train"], recipe["environment"]["num_envs"]
    return int(train["unroll"]), int(num_envs), int(train["data_parallel"])


def _normalizes(recipe: Mapping[str, Any]) -> bool:
    """Whether the recipe of a policy normalizes observations or rewards."""
    options = recipe.get("normalize")
    return isinstance(options, Mapping) and any(
        options.get(key) for key in ("observation", "reward")
    )


def write_source(path: Path, source: Source, learned: Iterable[str]) -> None:
    """Writes some of what a source has learned as a file, which is a source itself."""
    leaves = {name: source.learned[name] for name in learned}
    leaves |= {f"{_STEPS}{name}": leaf for name, leaf in source.recorded.items()}
    snapshots.write_learned(path, source.recipe, source.seeds, source.steps, leaves)


def learned_path(path: str) -> str:
    """Where the leaf of an agent's state is in `learned`; "" if it is not."""
    found = _LEARNED.fullmatch(path)
    return found[1] if found else ""


def learned_leaves(leaves: Leaves) -> dict[str, Any]:
    """What an agent has learned, from the leaves of its state by tree path."""
    learned = {learned_path(path): leaf for path, leaf in leaves.items()}
    best = {f"params/{path}": leaf for path, leaf in below("best/", learned).items()}
    # These start as copies of parameters.
    others = ("best/", "target/", "initial/")
    return best | {
        path: leaf
        for path, leaf in learned.items()
        if path and not path.startswith(others)
    }


def _find_file(name: str) -> Path:
    path = find_shipped_policy(complete_path(name))
    if path.is_file():
        return path
    if not path.exists() and (hint := find_hint("init", path.name)):
        raise RlcliError(f"there is no file or folder `{path}`", hint)
    run = locate_run(path)
    file = run.latest_checkpoint() or run.policy
    if not file.is_file():
        message = f"run `{run.folder}` has no checkpoint to start from"
        raise RlcliError(message, "train it up to its first checkpoint")
    return file


def learned_in_policy(acting: Leaves, is_normalized: bool) -> dict[str, Any]:
    """What a policy has learned, from its acting state by tree path.

    `is_normalized`: whether observations or rewards are.
    """
    learned: dict[str, Any] = {}
    if is_normalized:
        moments = below("observation/", acting).items()
        learned = {f"statistics/observation/{path}": leaf for path, leaf in moments}
        acting = below("policy/", acting)
    params = below("best/", acting) or acting
    return learned | {f"params/{path}": leaf for path, leaf in params.items()}


def below(prefix: str, leaves: Leaves) -> dict[str, Any]:
    """The leaves below a prefix, by their paths from there."""
    return {
        path.removeprefix(prefix): leaf
        for path, leaf in leaves.items()
        if path.startswith(prefix)
    }
