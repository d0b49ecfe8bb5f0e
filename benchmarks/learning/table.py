"""The table of results: one line per recipe."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from benchmarks.learning.rows import Row

HEAD = """# Learning

What the built-in recipes reach: the mean return of 100 greedy episodes with the last
parameters of each seed, sorted; over the seeds the interquartile mean (IQM) and its 95
% bootstrap interval. All seeds of a recipe train simultaneously, as one program. The
time is that of the whole command, including compilation, on CPU cores that had other
work too, at times several times as much: it says little about speed. A goal is met if
the whole interval is at least as high. No seed of the table was used for tuning; those
that were are in brackets.

In brackets: published results of a single run. On MuJoCo there are several. After as
many steps as here, on Hopper-v3 and so on: a run of
[Stable-Baselines3](https://github.com/DLR-RM/rl-trained-agents) (`evaluations.npz`)
with options tuned for each environment, and the mean and standard deviation of ten
seeds of
[Tianshou](https://github.com/thu-ml/tianshou/tree/39acf2094d96268d92ebb54dcbfc3de76d702567/examples/mujoco/benchmark)
(`test_rew_10seeds.csv`; its scripts take random steps before, which may not count).
After the semicolon, after 1 000 000 steps: the mean and standard deviation of three
seeds, on Hopper-v4 and so on, of
[CleanRL](https://github.com/vwxyzjn/cleanrl/tree/master/docs), measured while training,
and for TQC again Stable-Baselines3. The recipes have the options of CleanRL, and were
not tuned. On Atari Pong it is the return of PPO after 10 000 000 steps in [Schulman et
al. (2017)](https://arxiv.org/abs/1707.06347). For `ppo_breakout_10m` it is the return
of PPO in [gymnax-blines](https://github.com/RobertTLange/gymnax-blines) after as many
steps.

`python -m benchmarks.learning` repeats all measurements, `python -m benchmarks.learning
dqn_cartpole` one of them. The rows of MuJoCo Playground, JaxMARL, XLand-MiniGrid,
Craftax and PointMaze were measured with JAX 0.12 on Python 3.13, the others with JAX
0.10 on Python 3.11.

"""
COLUMNS = (
    *("recipe", "environment", "steps", "goal", "return of each seed", "IQM"),
    *("interval", "seeds", "seconds"),
)


def page(rows: Sequence[Row], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the whole document; recipes without results are omitted."""
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines = [line(row, results[row.recipe]) for row in rows if row.recipe in results]
    return HEAD + "".join(f"{text}\n" for text in head + lines)


def update_copies(
    text: str, rows: Sequence[Row], results: Mapping[str, Mapping[str, Any]]
) -> str:
    """Replaces the lines of recipes on another page, without seeds and time."""
    copies = {
        row.recipe: line(row, results[row.recipe]).rsplit(" | ", 2)[0] + " |"
        for row in rows
        if row.recipe in results
    }
    return re.sub(
        r"(?m)^\| `(\w+)` \| `.*$",
        lambda match: copies.get(match[1], match[0]),
        text,
    )


def update_curves(text: str, curves: Collection[str]) -> str:
    """Shows the learning curves of the recipes in a table below the table.

    `curves` are the recipes whose curves are in `docs/images/learning`.
    """
    text = re.sub(r"(?m)^!\[Learning curve of .*\n\n?", "", text)

    def add_images(match: re.Match[str]) -> str:
        names = re.findall(r"(?m)^\| `(\w+)`", match[0])
        images = [
            f"![Learning curve of {name}](../images/learning/{name}.svg)\n"
            for name in names
            if name in curves
        ]
        return match[0] + "".join(f"\n{image}" for image in images)

    return re.sub(r"(?m)(^\| `\w+` \| `.*\n)+", add_images, text)


def line(row: Row, result: Mapping[str, Any]) -> str:
    """Returns one line of the table."""
    means = sorted(result["means"])
    low, high = result["ci95"] or (means[0], means[0])  # a single seed has no interval
    goal = "none" if row.goal is None else f"≥ {number(row.goal)}"
    if row.published:
        goal += f" [{row.published}]"
    if row.goal is not None and low < row.goal:
        goal += " (missed)"
    cells = (
        f"`{row.recipe}`",
        f"`{result['environment']}`",
        f"{result['steps']:,}".replace(",", " "),
        goal,
        " ".join(map(number, means)),
        number(result["iqm"]),
        f"{number(low)} … {number(high)}" if result["ci95"] else "none",
        seeds(result),
        f"{result['seconds']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def seeds(result: Mapping[str, Any]) -> str:
    """Returns the seeds of a result, and those used for tuning."""
    text = _range(result["seeds"])
    if not result["tuned"]:
        return f"{text} (not tuned)"
    return f"{text} (tuned on {_range(result['tuned'])})"


def _range(ends: Sequence[int]) -> str:
    return " … ".join(map(str, dict.fromkeys(ends)))


def number(value: float) -> str:
    """Formats with one or two decimals and a typographic minus sign."""
    digits = 2 if abs(value) < 10 else 1
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−")
