"""`rlcli new`: copies a built-in recipe, ready to edit."""

from pathlib import Path

import rlcli
from rlcli.cli import completion, options, output
from rlcli.errors import RlcliError, shell_path


def command(
    recipe: str = options.argument(
        "RECIPE",
        "The name of a built-in recipe.",
        complete=completion.complete_recipe_name,
    ),
    environment: str | None = options.option(
        "--environment NAME",
        "Replace the environment: `Acrobot-v1`, or `{name: Acrobot-v1, num_envs: 4}`.",
        complete=completion.complete_environment,
    ),
    output_: Path | None = options.option(
        "--output FILE",
        "The new file. Default: the name of the recipe, in this folder.",
    ),
) -> None:
    """Copy a recipe with its comments into a new file, to edit it.

    Prints the file to stdout, and a command to try next to stderr.
    """
    from rlcli.runs.provenance import program  # here, to keep `--help` fast

    file = rlcli.new(recipe, environment=environment, output=output_)
    if environment is not None:
        try:
            rlcli.check([file])
        except RlcliError as error:
            output.print_message(
                f"warning: the recipe does not work with this environment yet: {error}"
            )
    output.print_message(f"next: {program()} train {shell_path(file)}")
    output.print_data(file)
