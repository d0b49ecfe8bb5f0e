"""`rlcli collect`: writes the steps of a trained policy as a data set."""

from pathlib import Path

from rlcli.cli import options, output
from rlcli.runs.formatting import format_number_of


def command(
    path: Path = options.POLICY_PATH,
    episodes: int | None = options.option(
        "--episodes N", "Whole episodes, of all seeds together. Default: 100.", min=1
    ),
    steps: int | None = options.option(
        "--steps N", "Steps instead of episodes; the last episode is truncated.", min=1
    ),
    output_: Path | None = options.option(
        "--output FILE",
        "The file, `.npz`. Default: `dataset.npz` in the run's folder, for a "
        "policy of the zoo in the current one.",
    ),
    best: bool = options.BEST,
    explore: bool = options.EXPLORE,
    random: bool = options.flag("--random", "Act at random, instead of greedily."),
    seed: int = options.SEED,
    json: bool = options.JSON,
    trust: bool | None = options.TRUST,
) -> None:
    """Write the steps of a trained policy as a data set.

    A recipe with this file learns from it offline. The policies of all seeds contribute
    equally. Prints the file.
    """
    from rlcli.evaluation.targets import check_collection  # to keep `--help` fast
    from rlcli.recipe.documents import format_inline

    result = options.call_for_policy("collect", check_collection, locals())
    if json:
        output.print_json(result)
        return
    output.print_data(result["file"])
    returns = result["return"]
    output.print_message(
        f"{format_number_of(result['steps'], 'step')} of "
        f"{format_number_of(result['episodes'], 'episode')} on "
        f"{result['environment']}: return {returns['mean']:.2f} ± {returns['std']:.2f}"
    )
    section = format_inline({"name": "dataset", "path": result["file"]})
    output.print_message(f"next: `replay: {section}`")
