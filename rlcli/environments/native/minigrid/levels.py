"""Registration of levels: the rules of a family become an environment of each level."""

from collections.abc import Callable, Mapping
from typing import Any

from rlcli.environments.native.minigrid.game import Level, ViewSize, level_environment
from rlcli.registry import register
from rlcli.types import Core, Positive

_OPTIONS = """
    Args:
        max_steps: the number of steps in the reward. The default is that of
            `time_limit`, which ends an episode.
        agent_view_size: the width of the observed square, in cells: odd, 3 … 31.
        see_through_walls: whether walls and doors do not hide what is behind them.
    """


def register_levels(
    levels: Mapping[str, Mapping[str, Any]],
    max_steps: Callable[..., int],
    *,
    see_through_walls: bool = False,
) -> Callable[[Callable[..., Level]], Callable[..., Level]]:
    """Returns a decorator that registers the environments of the levels of a family.

    Args:
        levels: the arguments of the decorated function, by the id of the level.
        max_steps: the time limit of a level, from the same arguments. It is also the
            default of the option `max_steps`.
        see_through_walls: the default of the option.
    """

    def decorate(make_level: Callable[..., Level]) -> Callable[..., Level]:
        for name, fixed in levels.items():
            limit = max_steps(**fixed)
            factory = _level_factory(make_level, fixed, limit, see_through_walls)
            register("environment", name, time_limit=limit)(factory)
        return make_level

    return decorate


def _level_factory(
    make_level: Callable[..., Level],
    fixed: Mapping[str, Any],
    limit: int,
    is_open: bool,
) -> Callable[..., Core]:
    """The factory of one level, with the options that all levels have."""

    def level(
        *,
        max_steps: Positive = float(limit),
        agent_view_size: ViewSize = 7,
        see_through_walls: bool = is_open,
    ) -> Core:
        rules = make_level(**fixed)
        return level_environment(rules, max_steps, agent_view_size, see_through_walls)

    level.__name__, level.__module__ = make_level.__name__, make_level.__module__
    level.__doc__ = f"{make_level.__doc__}{_OPTIONS}"
    return level
