"""Hooks: calls the hooks of a recipe at the events of a run, and saves their states."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlcli.assembly.build_part import build_listed_part
from rlcli.errors import RlcliError, quote, suggest
from rlcli.recipe import Recipe
from rlcli.runs import checkpoint
from rlcli.training.hook import EVENTS, Hook
from rlcli.xla.tree_paths import describe_leaf


class Hooks:
    """The hooks of a run, in the order of the recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._hooks = _build_hooks(recipe)
        self._episodes = 0  # at the last log point
        self._leaves = self._describe()

    def restore(self, leaves: Mapping[str, np.ndarray], source: Path) -> None:
        """Continues with the states in a checkpoint."""
        if not self._hooks:
            return
        states = self._states()
        restored = checkpoint.restore_tree(
            jax.tree.map(np.asarray, states), leaves, source=source
        )
        merged = jax.tree.map(_like, states, restored)
        self._episodes = merged["episodes"]
        for index, hook in enumerate(self._hooks):
            hook.state = merged[str(index)]

    def save(self) -> dict[str, np.ndarray]:
        """The states of the hooks, by tree path."""
        if not self._hooks:
            return {}
        return checkpoint.flatten_tree(jax.tree.map(np.asarray, self._states()))

    def act(self, chunk: Any, *, is_best: bool, is_checkpoint_due: bool) -> None:
        """Calls the methods of the events at the end of a chunk.

        `is_best`: whether a seed was better in this evaluation than ever before.
        """
        if self._hooks:
            for event in [*self._events(chunk, is_best, is_checkpoint_due)]:
                for hook in self._hooks:
                    getattr(hook, event)(chunk)
            self._check_leaves()

    def _describe(self) -> dict[str, str]:
        """Dtype and shape of what a checkpoint saves of the states, by tree path."""
        return {path: describe_leaf(leaf) for path, leaf in self.save().items()}

    def _check_leaves(self) -> None:
        """Refuses other leaves than at first: no resume could restore them."""
        now = self._describe()
        for path in sorted(now.keys() | self._leaves.keys()):
            before, after = (each.get(path, "nothing") for each in (self._leaves, now))
            if before != after:
                raise RlcliError(
                    f"the `state` of a hook has changed: {quote(path)}, the index of "
                    f"the hook first, was {before} and is {after}",
                    "`__init__` sets all of it, with the types that it keeps: 0.0 "
                    "instead of 0 for a float",
                )

    def _states(self) -> dict[str, Any]:
        states = {str(i): hook.state for i, hook in enumerate(self._hooks)}
        states["episodes"] = self._episodes
        for leaf in jax.tree.leaves(states):
            if np.asarray(leaf).dtype.kind not in "biuf":
                raise RlcliError(
                    f"the `state` of a hook has a {type(leaf).__name__}",
                    "it is saved in checkpoints: a tree of numbers and arrays",
                )
        return states

    def _events(
        self, chunk: Any, is_best: bool, is_checkpoint_due: bool
    ) -> Iterator[str]:
        if chunk.rows:
            yield "on_log"
            episodes = sum(row.get("ep", 0) for row in chunk.rows)
            if episodes > self._episodes:
                yield "on_episodes"
            self._episodes = episodes
        if chunk.evaluation:
            yield "on_evaluation"
            if is_best:
                yield "on_best"
        if is_checkpoint_due:
            yield "on_checkpoint"


def _build_hooks(recipe: Recipe) -> Sequence[Hook]:
    hooks: list[Hook] = []
    for index, part in enumerate(recipe.train.hooks):
        hint = "a hook is a `rlcli.training.Hook`"
        hook = build_listed_part(part, recipe, index, Hook, hint)
        for name in dir(hook):
            if name.startswith("on_") and name not in EVENTS:
                message = f"hook {quote(part.name)} has a method for an unknown event, "
                message += quote(name)
                place = ("train", "hooks", index)
                raise recipe.error(place, message, suggest(name, EVENTS))
        hooks.append(hook)
    return hooks


def _like(before: Any, restored: Any) -> Any:
    """A restored leaf of the state, a Python number if it was one."""
    is_number = isinstance(before, bool | int | float)
    return type(before)(restored.item()) if is_number else np.array(restored)
