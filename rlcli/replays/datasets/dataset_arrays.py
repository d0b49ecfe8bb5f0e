"""Arrays: the steps of a data set, their checks, and their conversion to rows."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import gymnasium
import jax
import numpy as np

from rlcli import spaces
from rlcli.errors import RlcliError
from rlcli.spaces import describe
from rlcli.spaces.canonical import Canonical, canonical_spaces
from rlcli.types import ArrayTree, External, Transition
from rlcli.xla.tree_paths import escape_step, leaves_by_path

# Arrays by the tree path of a member of a Tuple or Dict; "" for a single array.
Members = Mapping[str, np.ndarray]
TREES = ("observations", "actions", "final_observations")  # fields with members
OPTIONAL = "parameters"  # a field whose members a file may lack
FLAT = ("rewards", "terminations", "truncations")
_MAX = np.finfo(np.float32).max
_ROUNDING = 1e-6  # relative error of actions that were computed in 32 bits
_COLLECT = "`rlcli collect` writes data sets; docs/formats.md describes their arrays"


class DatasetArrays(NamedTuple):
    """N steps of E whole episodes, one episode after the other."""

    observations: Members  # `[N, ...]`: before each step
    actions: Members  # `[N, ...]`
    rewards: np.ndarray  # `[N]`
    terminations: np.ndarray  # bool `[N]`: the episode has ended here
    truncations: np.ndarray  # bool `[N]`: it was cut off here
    final_observations: Members  # `[E, ...]`: after the last step of each episode
    metadata: Mapping[str, Any] = MappingProxyType({})
    # `[E]`: numbers of the environment that differ between episodes, by name
    parameters: Members = MappingProxyType({})

    @property
    def ends(self) -> np.ndarray:
        """Whether each step is the last of its episode."""
        return self.terminations | self.truncations

    @property
    def returns(self) -> np.ndarray:
        """The return of each episode."""
        last = np.flatnonzero(self.ends)
        totals = np.cumsum(self.rewards, dtype=np.float64)[last]
        return np.diff(totals, prepend=0.0)

    def by_name(self) -> dict[str, np.ndarray]:
        """All arrays by their names in a file, in a fixed order."""
        names = {
            _join(key, path): array
            for key in (*TREES, OPTIONAL)
            for path, array in sorted(getattr(self, key).items())
        }
        return names | {key: getattr(self, key) for key in FLAT}

    def check(self, name: str) -> None:
        """Refuses arrays with other lengths or types, or that are not finite."""

        def refuse(problem: str) -> NoReturn:
            raise RlcliError(f"{name}: {problem}", _COLLECT)

        steps = self.rewards.shape[0] if self.rewards.ndim == 1 else 0
        if not steps:
            refuse(f"`rewards` has shape {list(self.rewards.shape)}, expected [steps]")
        for key in ("terminations", "truncations"):
            array = getattr(self, key)
            if array.dtype != np.bool_ or array.shape != (steps,):
                refuse(f"`{key}` is {_describe(array)}, expected bool[{steps}]")
        if not self.ends[-1]:
            refuse("its last step ends no episode: `truncations[-1]` has to be true")
        count = int(np.sum(self.ends))
        expected: dict[str, int] = {"final_observations": count, OPTIONAL: count}
        for key, array in self.by_name().items():
            length = expected.get(key.partition("/")[0], steps)
            if array.ndim == 0 or array.shape[0] != length:
                refuse(f"`{key}` is {_describe(array)}, expected {length:,} rows")
            if array.dtype.kind not in "biuf":
                refuse(f"`{key}` is of {array.dtype}, expected numbers")
            is_finite = (array >= -_MAX) & (array <= _MAX)  # also after the conversion
            if not np.all(is_finite):
                row = int(np.argwhere(~is_finite)[0][0])
                refuse(f"`{key}` is not finite in row {row:,}, as {_MAX.dtype}")

    def to_transitions(self, external: External, name: str, owner: str) -> Transition:
        """The steps as rows `[N, ...]` of an environment's canonical spaces.

        Raises an `RlcliError` if the arrays of the data set `name` are not those of the
        spaces `external` of `owner`, such as "environment `CartPole-v1`".
        """
        observation, action = canonical_spaces(external, owner)

        def read(key: str, canonical: Canonical) -> ArrayTree:
            elements = _to_elements(
                getattr(self, key), canonical.external, key, name, owner
            )
            return canonical.to_canonical(elements)

        obs, final_obs = (
            read(key, observation) for key in ("observations", "final_observations")
        )
        actions = read("actions", action)
        last = self.ends
        episode = np.cumsum(last) - last  # the index of the episode of each step

        def next_rows(leaf: np.ndarray, final: np.ndarray) -> np.ndarray:
            rows = np.concatenate([leaf[1:], leaf[-1:]])
            rows[last] = final[episode[last]]
            return rows

        return Transition(
            obs=obs,
            action=actions,
            reward=self.rewards.astype(np.float32, copy=False),
            discount=np.where(self.terminations, 0, 1).astype(np.float32),
            next_obs=jax.tree.map(next_rows, obs, final_obs),
            first=np.concatenate([[True], last[:-1]]),
            last=last,
            extras={},
        )


def _to_elements(
    members: Members, space: gymnasium.Space, key: str, name: str, owner: str
) -> ArrayTree:
    """The arrays of a space's members, as a batch of elements of the space."""

    def refuse(path: str, problem: str) -> NoReturn:
        raise RlcliError(
            f"{name} does not fit {owner}: `{_join(key, path)}` {problem}",
            "use data of an environment with the same spaces and wrappers, in its own "
            "units: as it returns observations and takes actions",
        )

    def convert(path: str, member: gymnasium.Space) -> np.ndarray:
        if path not in members:
            refuse(path, f"is missing: {describe(space)}")
        array, dtype = members[path], spaces.dtype(member)
        kinds = {"f": "f", "b": "b"}.get(dtype.kind, "iu")
        if array.shape[1:] != member.shape or array.dtype.kind not in kinds:
            found = f"{array.dtype}{list(array.shape[1:])}"
            refuse(path, f"holds {found}, expected {describe(member)}")
        if dtype.kind == "f" and key != "actions":
            return array  # observations may be beyond their bounds
        is_outside = _is_outside(member, array)
        if np.any(is_outside):
            row = int(np.argwhere(is_outside)[0][0])
            problem = f"holds values outside {describe(member)}, such as"
            refuse(path, f"{problem} {array[is_outside][0]:g} in row {row:,}")
        return array

    member_spaces = dict(_member_spaces(space))
    if unknown := sorted(members.keys() - member_spaces.keys()):
        refuse(unknown[0], f"is not a member of {describe(space)}")
    element = spaces.zeros(space)
    leaves = [convert(path, member_spaces[path]) for path in leaves_by_path(element)]
    return jax.tree.unflatten(jax.tree.structure(element), leaves)


def _is_outside(space: gymnasium.Space, array: np.ndarray) -> np.ndarray:
    """Where values are outside the bounds of a space; floats may be rounded."""
    low, high = spaces.exact_bounds(space)
    if low.dtype.kind != "f":
        return (array < low) | (array > high)
    low, high = low.astype(np.float64), high.astype(np.float64)
    largest = np.maximum(
        *(np.abs(np.nan_to_num(x, posinf=0, neginf=0)) for x in (low, high))
    )
    slack = _ROUNDING * largest
    return (array < low - slack) | (array > high + slack)


def _member_spaces(
    space: gymnasium.Space, path: str = ""
) -> Iterator[tuple[str, gymnasium.Space]]:
    """The spaces of the arrays of an element, by tree path."""
    members = spaces.members(space)
    for key, member in members.items():
        step = escape_step(key)
        yield from _member_spaces(member, f"{path}/{step}" if path else step)
    if not members:
        yield path, space


def _join(key: str, path: str) -> str:
    """The name of an array in a file."""
    return f"{key}/{path}" if path else key


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
