"""`rlcli diff`: compares two runs or recipes."""

import rlcli
from rlcli.cli import completion, options, output

METAVAR = "RUN|RECIPE"


def command(
    first: str = options.argument(
        METAVAR,
        "The folder of a run, a YAML file, or the name of a built-in recipe.",
        complete=completion.complete_run_or_recipe,
    ),
    second: str = options.argument(
        METAVAR,
        "Another run or recipe, to compare with.",
        complete=completion.complete_run_or_recipe,
    ),
    json: bool = options.JSON,
) -> None:
    """Compare two runs or recipes.

    Prints the options that differ. For two runs, also prints differences in versions,
    git state, machines and seeds, and the results of both.
    """
    paths = [options.choose_run(path) for path in (first, second)]
    result = rlcli.diff(*paths)
    if json:
        output.print_json(result)
        return
    from rlcli.cli import tables  # here, to keep `--help` fast

    output.table_console().print(tables.diff_table(result))
