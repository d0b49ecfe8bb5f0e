"""Measures what runs gain from other runs, from data, and from easier tasks.

    python -m benchmarks.transfer [NAME …] [--seeds 2000 2009] [--folder build/transfer]

Each experiment trains a few recipes with the same number of steps and the same new
seeds, stacked as one program, and evaluates 100 greedy episodes with the last
parameters of each seed. Its table is written into the page, below the comment
`<!-- transfer: NAME -->`: the interquartile mean over seeds, and its 95 % bootstrap
interval. The few options that were tried, were tried on the seeds 0 … 2.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import rlcli
from rlcli.recipe import load_recipe

RESULTS = Path(__file__).with_name("transfer.json")
PAGE = Path(__file__).parents[1] / "docs" / "guides" / "transfer.md"
EPISODES = 100


class Arm(NamedTuple):
    """One way to train, and how it differs from the others."""

    label: str
    recipe: str
    sets: tuple[str, ...] = ()
    source: str = ""  # the recipe whose run of the same seeds is the source of `init`
    collects: str = ""  # the policy whose steps are the data set, as many as the run's


class Experiment(NamedTuple):
    """Arms that are compared, with the columns of the table."""

    title: str
    arms: tuple[Arm, ...]
    # Heading -> the environment of the evaluation; None: that of the run.
    evaluations: Mapping[str, str | None]


GREEDY = {"greedy return": None}
ONLINE = ("replay.prefill=null", "replay.prefill_fraction=null")
SYMMETRIC = "network.critic.preprocess=[{name: member, of: observation}]"
TEACHER = "init={from: zoo/ppo_cartpole, seed: 0, teacher: true}"
LONGER = (
    "init={from: zoo/ppo_cartpole, seed: 0}",
    "environment.length=2.0",
    "train.steps=10_240",
)
MAZE = (
    "environment={name: MetaMaze-v0, num_envs: 32, wrappers: [previous], "
    "levels: {count: 20, by: regret, temperature: 1.0}}",
    "network.layers=[64]",
    "network.memory.size=64",
    "normalize.reward=true",
    "tracer.gamma=0.97",
    "updater.minibatches=4",
    "optimizer.learning_rate={from: 1e-3, to: 0.0}",
    "train.steps=400_000",
    "train.unroll=200",
)
KL = (
    "updater.regularizers=[{name: kl, to: initial, "
    "weight: {from: 1.0, to: 0.0, over: 50%}}]"
)
EXPERIMENTS = {
    "offline": Experiment(
        "Pendulum",
        (
            Arm("CQL, from the data alone", "cql_pendulum"),
            Arm("SAC from nothing", "rlpd_pendulum", ONLINE),
            Arm(
                "SAC, the data in its replay",
                "rlpd_pendulum",
                ("replay.prefill_fraction=null",),
            ),
            Arm("RLPD: half of each batch from the data", "rlpd_pendulum"),
            Arm("RLPD from the parameters of CQL", "rlpd_pendulum", (), "cql_pendulum"),
        ),
        GREEDY,
    ),
    "privileged_ppo": Experiment(
        "CartPole, of whose observations the policy sees positions",
        (
            Arm(
                "the critic sees positions, and has a memory",
                "ppo_cartpole_privileged",
                (
                    "network.value={name: mlp, layers: [64], activation: tanh, memory: "
                    "{name: gru, size: 64}, preprocess: [{name: entries, of: [0, 2]}]}",
                ),
            ),
            Arm("the critic sees velocities, too", "ppo_cartpole_privileged"),
        ),
        GREEDY,
    ),
    "privileged_sac": Experiment(
        "SAC on Pendulum",
        (
            Arm("both see the same", "sac_pendulum_privileged", (SYMMETRIC,)),
            Arm("the critic sees mass and gravity", "sac_pendulum_privileged"),
        ),
        GREEDY,
    ),
    "privileged_td3": Experiment(
        "TD3 on Pendulum",
        (
            Arm("both see the same", "td3_pendulum_privileged", (SYMMETRIC,)),
            Arm("the critics see mass and gravity", "td3_pendulum_privileged"),
        ),
        GREEDY,
    ),
    "teacher": Experiment(
        "CartPole",
        (
            Arm("PPO from nothing", "ppo_cartpole", ("train.steps=10_240",)),
            Arm(
                "PPO near a teacher",
                "ppo_cartpole",
                ("train.steps=10_240", TEACHER, KL),
            ),
        ),
        GREEDY,
    ),
    "fine_tuning": Experiment(
        "CartPole with a longer pole",
        (
            Arm("from the policy of the zoo", "ppo_cartpole", LONGER),
            Arm("the same, near it", "ppo_cartpole", (*LONGER, KL)),
        ),
        {"a pole of four times the length": None, "the old task": "CartPole-v1"},
    ),
    "dagger": Experiment(
        "Pendulum",
        (
            Arm(
                "PPO from nothing",
                "ppo_pendulum",
                ("train.steps=400", "train.unroll=20", "updater.minibatches=4"),
            ),
            Arm(
                "behaviour cloning of the teacher's steps",
                "dagger_pendulum",
                (
                    "init=null",
                    "updater.labels=data",
                    "replay={name: dataset, path: {data}, batch_size: 64}",
                    "environment.num_envs=1",
                    "train.steps=720",  # updates, as many as those of DAgger
                    "train.start=0",
                ),
                collects="zoo/ppo_pendulum",
            ),
            Arm("DAgger", "dagger_pendulum"),
        ),
        GREEDY,
    ),
    "levels": Experiment(
        "DoorKey-6x6",
        (
            Arm(
                "20 levels, uniformly",
                "ppo_minigrid_levels",
                ("environment.levels.by=uniform",),
            ),
            Arm("20 levels, by regret", "ppo_minigrid_levels"),
            Arm("new levels only", "ppo_minigrid_levels", ("environment.levels=null",)),
        ),
        {
            "the 20 levels": "{levels: {count: 20}}",
            "held-out levels": "{levels: {count: 1000, first: 1000}}",
        },
    ),
    "levels_maze": Experiment(
        "MetaMaze, with a recurrent policy",
        (
            Arm(
                "20 levels, uniformly",
                "ppo_memory_chain",
                (*MAZE, "environment.levels.by=uniform"),
            ),
            Arm("20 levels, by regret", "ppo_memory_chain", MAZE),
            Arm(
                "new levels only",
                "ppo_memory_chain",
                (*MAZE, "environment.levels=null"),
            ),
        ),
        {
            "the 20 levels": "{levels: {count: 20}}",
            "held-out levels": "{levels: {count: 1000, first: 1000}}",
        },
    ),
    "curriculum": Experiment(
        "MountainCarContinuous with a third of the power",
        (
            Arm(
                "the task itself",
                "ppo_mountain_car_curriculum",
                ("environment.power=0.0005",),
            ),
            Arm(
                "an engine that becomes weaker with time",
                "ppo_mountain_car_curriculum",
                ("environment.power={from: 0.004, to: 0.0005, over: 50%}",),
            ),
            Arm(
                "an engine that becomes weaker with success",
                "ppo_mountain_car_curriculum",
            ),
        ),
        GREEDY,
    ),
}


def measure(name: str, arm: Arm, seeds: range, folder: Path) -> dict[str, Any]:
    """Trains an arm, or takes its run, and evaluates it."""
    run = train(arm, seeds, folder, name)
    returns = {}
    for heading, environment in EXPERIMENTS[name].evaluations.items():
        result = rlcli.eval(run, episodes=EPISODES, environment=environment)
        found = result["return"]
        returns[heading] = {"iqm": found["iqm"], "ci95": found["ci95"]}
    return {"seeds": [seeds[0], seeds[-1]], "returns": returns}


def train(arm: Arm, seeds: range, folder: Path, name: str = "") -> Path:
    """Trains an arm of an experiment, or continues its run.

    Arms without options of their own, which are sources too, share a run.
    """
    run = folder / arm.recipe
    if arm != Arm(arm.label, arm.recipe):
        index = [each.label for each in EXPERIMENTS[name].arms].index(arm.label)
        run = folder / f"{name}_{index}"
    if run.exists():
        rlcli.resume(run, quiet=True)
        return run
    sets = [
        f"train.seed={seeds[0]}",
        f"train.seeds={len(seeds)}",
        "train.evaluate=null",
    ]
    source = train(Arm("", arm.source), seeds, folder) if arm.source else None
    data = ""
    if arm.collects:
        file = folder / f"{arm.recipe}.npz"
        steps = load_recipe(arm.recipe).train.steps
        rlcli.collect(arm.collects, steps=steps, explore=True, output=file)
        data = str(file.resolve())
    options = [change.replace("{data}", data) for change in arm.sets]
    rlcli.train(arm.recipe, set=[*sets, *options], init=source, run=run, quiet=True)
    return run


def table(name: str, results: Mapping[str, Any]) -> str:
    """The table of an experiment, in Markdown."""
    headings = [*EXPERIMENTS[name].evaluations]
    lines = [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    for arm in EXPERIMENTS[name].arms:
        cells = [
            format_return(results[arm.label]["returns"][heading])
            for heading in headings
        ]
        lines.append(f"| {arm.label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def describe(name: str, results: Mapping[str, Any]) -> str:
    """The sentence before the table of an experiment."""
    arm = EXPERIMENTS[name].arms[-1]
    sets = [change for change in arm.sets if change.startswith("train.steps=")]
    steps = load_recipe(arm.recipe, sets).train.steps
    first, last = results[arm.label]["seeds"]
    seeds = f"{last - first + 1} seeds that were not used for tuning"
    return (
        f"{EXPERIMENTS[name].title}, after {steps:,} steps: the interquartile mean "
        f"over {seeds}, and its 95 % interval (`python -m benchmarks.transfer {name}`):"
    )


def format_return(result: Mapping[str, Any]) -> str:
    """The interquartile mean and its interval: `−145.6 (−152 … −136.5)`."""
    low, high = result["ci95"] or (result["iqm"], result["iqm"])
    return f"{number(result['iqm'])} ({number(low)} … {number(high)})"


def number(value: float) -> str:
    """A number with four digits, and a minus sign."""
    return f"{value:.4g}".replace("-", "−")


def update_page(results: Mapping[str, Any]) -> None:
    """Replaces the tables of the page by those of the results."""
    text = PAGE.read_text(encoding="utf-8")
    for name, arms in results.items():
        begin, end = f"<!-- transfer: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        lines = f"\n{describe(name, arms)}\n\n{table(name, arms)}\n\n"
        text = f"{before}{begin}{lines}{end}{after}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Measures the named experiments, and writes their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer")
    parser.add_argument("names", nargs="*", help="experiments; all by default")
    parser.add_argument("--seeds", nargs=2, type=int, default=(2_000, 2_009))
    parser.add_argument("--folder", type=Path, default=Path("build/transfer"))
    parser.add_argument("--dry", action="store_true", help="print, do not store")
    options = parser.parse_args()
    names = options.names or [*EXPERIMENTS]
    if unknown := {*names} - {*EXPERIMENTS}:
        parser.error(f"expected some of {', '.join(EXPERIMENTS)}, got {unknown}")
    seeds = range(options.seeds[0], options.seeds[1] + 1)
    for name in names:
        arms = {}
        for arm in EXPERIMENTS[name].arms:
            arms[arm.label] = measure(name, arm, seeds, options.folder)
            print(name, arm.label, arms[arm.label]["returns"], flush=True)
        print(table(name, arms), flush=True)
        if options.dry:
            continue
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = arms
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        update_page(results)


if __name__ == "__main__":
    main()
