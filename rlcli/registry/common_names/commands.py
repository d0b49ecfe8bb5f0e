"""Common names of commands: groups of names, with one hint each."""

from __future__ import annotations

COMMANDS = {
    "evaluate evaluation test score": "`rlcli eval` evaluates a trained policy",
    "enjoy play view visualize visualise video record film": (
        "`rlcli render` renders a trained policy"
    ),
    "learn fit run start": "`rlcli train` trains the agent of a recipe",
    "continue restart": "`rlcli resume` continues a run",
    "validate lint verify": "`rlcli check` checks recipes without training them",
    "describe info inspect": "`rlcli show` shows a recipe, or the options of a part",
    "envs environments algorithms recipes ls": "`rlcli list` lists parts and recipes",
    "tune optimize search hyperopt optuna": (
        "`rlcli sweep` tunes hyperparameters of a recipe"
    ),
}
