"""`rlcli inspect`: shows the next update of a checkpoint."""

from pathlib import Path

import rlcli
from rlcli.cli import completion, options, output
from rlcli.cli.options import JSON, TRUST, argument, option
from rlcli.quoting import quote_rich
from rlcli.runs import thread_layout


def command(
    run: Path = argument(
        "RUN|CHECKPOINT",
        "The folder of a run, or one of its checkpoints.",
        complete=completion.complete_run,
    ),
    checkpoint: int | None = option(
        "--checkpoint STEP", "The step of a checkpoint. Default: the latest."
    ),
    seed: int | None = option(
        "--seed N", "A seed of the run. Default: the first.", min=0
    ),
    episodes: int = option(
        "--episodes N",
        "Episodes of the greedy policy, to compare values with returns.",
        default=5,
        min=0,
    ),
    json: bool = JSON,
    trust: bool | None = TRUST,
) -> None:
    """Show what the updater of a run gets and does next.

    Prints the batch of the next update, the terms of its loss, gradients and parameters
    of each layer, dead units, actions, values against returns, and what the replay has.
    """
    from rlcli.runs.locate import locate_checkpoint  # here, to keep `--help` fast

    path = options.choose_run(run)
    locate_checkpoint(path, checkpoint)  # refuses a missing file before JAX is imported
    thread_layout.apply_for_policy(path)
    found = options.call(rlcli.inspect, locals(), run=path)
    if json:
        output.print_json(found.as_dict())
        return
    from rlcli.evaluation.inspection.inspection_tables import headline, tables

    screen = output.console()
    screen.print(quote_rich(headline(found)), soft_wrap=True)
    for table in tables(found):
        screen.print()
        output.print_table(table, screen)
    for sign in found.signs:
        screen.print(quote_rich(f"sign: {sign}"), soft_wrap=True)
    output.print_notes(found.notes)
