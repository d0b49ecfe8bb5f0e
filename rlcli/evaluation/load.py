"""Load: a trained policy from a run, to act with it in Python."""

import sys
from pathlib import Path

import jax

from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.evaluation.evaluate import snapshot_inputs
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.registry.paths import resolves
from rlcli.runs import snapshots
from rlcli.runs.locate import locate_checkpoint, locate_policy

LATEST = -1  # the step of the latest checkpoint


@resolves("run")
def load(
    run: str | Path,
    *,
    best: bool = False,
    checkpoint: int | None = None,
    seed: int | None = None,
    trust: bool | None = None,
) -> TrainedPolicy:
    """Loads the policy of one seed of a run.

        policy = rlcli.load("runs/dqn_cartpole")
        env = policy.make_env()
        obs, _ = env.reset()
        action, state = policy.act(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        action, state = policy.act(obs, state)

    Args:
        run: what `rlcli eval` takes: a run's folder, the folder of a recipe's runs
            (then the newest run), the folder of runs with varied options (then the one
            with the highest return), a policy file or a checkpoint.
        best: loads the policy of the seed's best evaluation instead of the latest.
        checkpoint: the step of a checkpoint of the run; −1 is the latest. A checkpoint
            has the critics, so that `value` and `action_value` work with every
            algorithm that learns values.
        seed: a seed of the run, as metrics and `rlcli eval` name it; by default the
            first.
        trust: whether the file's recipe may import code from outside rlcli and
            plug-ins. By default that of your own runs may, see `rlcli.trust`.

    Raises:
        RlcliError: if there is no such run, file or seed; if the file is damaged; or if
            its recipe imports code that is not trusted.
    """
    if checkpoint is None:
        _, file = locate_policy(run, best=best)
    elif best:
        raise RlcliError(
            "`best` is a policy, and `checkpoint` another one", "pass one of them"
        )
    else:
        file = locate_checkpoint(run, None if checkpoint == LATEST else checkpoint)
    snapshot = snapshots.load_snapshot(file, trust=trust)
    seed = snapshots.choose_seed(file, snapshot.seeds, seed)
    index = snapshot.seeds.index(seed)
    setup = build(snapshot.recipe, snapshot.seeds)
    acting = snapshots.restore_acting(snapshot, setup, file)
    if frozen := snapshot.frozen.get(seed):
        step = f"{frozen.step:,}"
        warning = f"seed {seed} is frozen: its parameters are those of step {step}"
        print(f"warning: {warning}", file=sys.stderr)
    return TrainedPolicy(
        snapshot.recipe,
        setup,
        snapshot_inputs(snapshot, index),
        jax.tree.map(lambda leaf: leaf[index], acting),
        seed=seed,
        steps=snapshot.steps[index],
        file=file,
        learner=jax.tree.map(lambda leaf: leaf[index], snapshot.learner),
    )
