"""Reference scores of the native environments: `python -m benchmarks.references`.

    python -m benchmarks.references [ENVIRONMENT …]

Measures the mean return of uniformly random actions, over 10 seeds with 100 episodes
each, in every native environment with default options, or only in the named ones.
Writes it with a good return and its source to `rlcli/results/references.json`, which
normalizes scores, and to docs/references.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from benchmarks.learning.table import number
from rlcli import registry
from rlcli.assembly import build
from rlcli.environments.native.toy_text import cliff_walking
from rlcli.evaluation.make_evaluator import make_evaluator
from rlcli.recipe import Recipe, load_recipe, resolve
from rlcli.results.references import drop_other_options

ROOT = Path(__file__).parents[1]
FILE = ROOT / "rlcli" / "results" / "references.json"
PAGE = ROOT / "docs" / "references.md"
LEARNING = ROOT / "benchmarks" / "learning" / "results.json"
SEEDS, EPISODES = 10, 100


HEAD = """# Reference scores

The returns that [`rlcli compare`](results.md) and `plot` normalize to 0 and 1, of the
native environments with default options. 0 is the mean return of 1,000 episodes with
uniformly random actions; the last column says what 1 is. `python -m
benchmarks.references` repeats the measurements, and writes this page and the file that
rlcli reads.

| environment | 0: random | 1: good | source of the good return |
|---|---|---|---|
"""


class Good(NamedTuple):
    """A good return, and where it comes from."""

    value: float
    source: str


BOUND = Good(1, "the largest possible return")
PATH = Good(-13, "the shortest path")
GOOD = {  # of a name, or of all that begin with it; otherwise `find_good` finds one
    "BernoulliBandit-v0": Good(
        74.7,
        "Thompson sampling in [Duan et al. (2016)](https://arxiv.org/abs/1611.02779)",
    ),
    "BitFlip-v0": Good(-6.5, "every wrong bit is flipped once"),
    "Blackjack-v1": BOUND,
    "CliffWalking-v": PATH,
    "ConnectFour-v0": BOUND,
    "FourRooms-v0": BOUND,
    "FrozenLakeNonSlippery-v0": BOUND,
    "GaussianBandit-v0": Good(8.33, "the better arm in every pull: 100 E[max(0, μ)]"),
    "GridWorld-v0": Good(
        0.705,
        "the optimal value in [Russell and Norvig](https://aima.cs.berkeley.edu/)",
    ),
    "KArmedBandit-v0": Good(1539, "the best arm in every pull: 1000 E[max q*]"),
    "MiniGrid-": Good(1, "the limit of the return: success after no step"),
    "Pong-v0": BOUND,
    "Reacher-v0": Good(100, "the limit of the return: at the target in every step"),
    "bsuite/Cartpole": Good(1000, "no regret in bsuite"),
    "bsuite/CartpoleSwingup": Good(700, "no regret in bsuite"),
    "bsuite/DeepSea": Good(0.99, "no regret in bsuite"),
    "bsuite/DiscountingChain": Good(1.1, "no regret in bsuite"),
    "bsuite/MountainCar": Good(-100, "no regret in bsuite"),
    "bsuite/": Good(1, "no regret in bsuite"),
}
COMMAND = "the IQM over seeds of `rlcli train {} --seed 1000 --seeds 5`"
MEMORY = (
    "ppo_memory_chain --set 'environment={{name: {}, num_envs: 64, wrappers: "
    "[previous]}}' --set train.unroll=50 --set train.steps=2_000_000"
)
SWIM = (
    "ppo_pendulum --set environment.name=Swimmer-v0 --set environment.num_envs=16 "
    "--set tracer.gamma=0.99 --set train.unroll=256 --set train.steps=500_000"
)
GOOD |= {
    "MetaMaze-v0": Good(111.42, COMMAND.format(MEMORY.format("MetaMaze-v0"))),
    "PointRobot-v0": Good(58.15, COMMAND.format(MEMORY.format("PointRobot-v0"))),
    "Swimmer-v0": Good(211.5, COMMAND.format(SWIM)),
}
DATA = "bsuite/MNISTBandit"  # needs files: a random guess is right in 1 of 10 cases


def native_environments() -> list[str]:
    """The environments of rlcli with a good return; probes have none."""
    found = registry.names("environment")
    return [name for name in found if name[-1] != "/" and "probe" not in name]


def find_good(name: str) -> Good:
    """The good return of an environment."""
    if name == "CliffWalkingSlippery-v1":
        return Good(round(slippery_cliff_value(), 1), "the optimal value")
    for start, good in GOOD.items():
        if name.startswith(start) and (start[-1] in "-/v" or name == start):
            return good
    with contextlib.suppress(gymnasium.error.Error):
        threshold = gymnasium.spec(name.replace("Taxi-v3", "Taxi-v4")).reward_threshold
        if threshold is not None:
            return Good(threshold, "solved, by the registry of Gymnasium")
    results = json.loads(LEARNING.read_text("utf-8"))
    measured = name.replace("-v0", "-v1") if name.startswith("MinAtar/") else name
    recipes = [key for key, each in results.items() if each["environment"] == measured]
    best = max(recipes, key=lambda key: results[key]["iqm"])
    value = float(f"{results[best]['iqm']:.4g}")
    return Good(value, f"[the IQM of `{best}`](learning.md)")


def slippery_cliff_value() -> float:
    """The optimal value of the start of CliffWalkingSlippery-v1, for γ = 1."""
    world = cliff_walking._world()
    values = np.zeros(cliff_walking.ROWS * cliff_walking.COLUMNS)
    rewards = np.array([-1.0, -100.0])[world.reward_index.astype(int)]
    for _ in range(10_000):
        after = np.where(world.terminates, 0.0, values[world.next_state])
        values = (rewards + after).mean(axis=-1).max(axis=-1)
    return float(values[cliff_walking.START])


def random_recipe(name: str) -> Recipe:
    """A recipe that acts randomly in an environment."""
    section = {"environment": name, "policy": "random", "updater": "ppo"}
    return load_recipe(section, [f"train.seeds={SEEDS}"])


def default_options(name: str) -> dict[str, Any]:
    """The options of an environment that make the task."""
    section = resolve(random_recipe(name))["environment"]
    return json.loads(json.dumps(drop_other_options(section)))


def measure_random(name: str) -> float:
    """The mean return of uniformly random actions, to four digits."""
    if name == DATA:
        return -0.8
    recipe = random_recipe(name)
    setup = build(recipe, range(SEEDS))
    result = make_evaluator(recipe, setup, EPISODES).evaluate(())
    return float(f"{result.returns.mean():.4g}")


def page(references: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of all references."""
    lines = [
        f"| `{name}` | {number(each['low'])} | {number(each['high'])} "
        f"| {each['source']} |\n"
        for name, each in references.items()
    ]
    return HEAD + "".join(lines)


def main() -> None:
    """Measures, and writes the file and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT")
    names = parser.parse_args().environments or native_environments()
    found = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for name in names:
        good = find_good(name)
        found[name] = {
            "low": measure_random(name),
            "high": good.value,
            "source": good.source,
            "options": default_options(name),
        }
        print(name, found[name], flush=True)
        ordered = dict(sorted(found.items()))
        lines = ",\n".join(
            f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}"
            for k, v in ordered.items()
        )
        FILE.write_text(f"{{\n{lines}\n}}\n", "utf-8")
        PAGE.write_text(page(ordered), "utf-8")


if __name__ == "__main__":
    main()
