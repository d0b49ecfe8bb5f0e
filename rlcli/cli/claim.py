"""`rlcli claim`: prints the verdicts of the test of a study."""

from pathlib import Path

import rlcli
from rlcli.cli import options, output


def command(
    study: Path = options.argument("STUDY", "The folder of a study with a `test`."),
    plan: bool = options.flag(
        "--plan", "Also print the power of all seeds, by the measured spread."
    ),
    json: bool = options.JSON,
) -> None:
    """Print the verdicts of the test of a study.

    A sentence for each cell: it is better or worse than the baseline, has no difference
    larger than `effect`, or is undecided. Also while the study trains: complete blocks
    of seeds count.
    """
    data = rlcli.claim(study, plan=plan)
    output.print_notes(data["notes"])
    if json:
        output.print_json(data)
        return
    from rlcli.results.claims import describe_plan  # here, to keep `--help` fast
    from rlcli.runs.run_folder import Run

    for each in data["claims"]:
        output.print_data(each["sentence"])
        if plan and "plan" in each:
            output.print_data(f"  {describe_plan(each['plan'])}")
    if any(each["is_open"] for each in data["claims"]):
        output.print_message(f"next: {Run(study).command('resume')}")
