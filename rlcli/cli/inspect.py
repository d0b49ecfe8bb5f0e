"""`rlcli inspect`: shows the next update of a checkpoint."""

from pathlib import Path

from rlcli.cli import completion, options, output
from rlcli.quoting import quote_rich


def command(
    path: Path = options.argument(
        "RUN|CHECKPOINT",
        "The folder of a run, or one of its checkpoints.",
        complete=completion.complete_run,
    ),
    checkpoint: int | None = options.option(
        "--checkpoint STEP", "The step of a checkpoint. Default: the latest."
    ),
    seed: int | None = options.SEED_OF_RUN,
    episodes: int = options.option(
        "--episodes N",
        "Episodes of the greedy policy, to compare values with returns.",
        default=5,
        min=0,
    ),
    json: bool = options.JSON,
    trust: bool | None = options.TRUST,
) -> None:
    """Show the next update of a run: its batch, loss and changes.

    Prints the batch of the next update, the terms of its loss, gradients and parameters
    of each layer, dead units, actions, values against returns, and what the replay has.
    """
    from rlcli.runs.locate import locate_checkpoint  # here, to keep `--help` fast

    found = options.call_for_policy(
        "inspect", locate_checkpoint, locals(), step=checkpoint
    )
    if json:
        output.print_json(found.as_dict())
        return
    from rlcli.evaluation.inspection.inspection_records import headline, tables

    screen = output.console()
    screen.print(quote_rich(headline(found)), soft_wrap=True)
    for table in tables(found):
        screen.print()
        output.print_table(table, screen)
    for sign in found.signs:
        screen.print(quote_rich(f"sign: {sign}"), soft_wrap=True)
    output.print_notes(found.notes)
