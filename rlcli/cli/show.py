"""`rlcli show`: prints a recipe with every default, a part's options, or a run."""

import rlcli
from rlcli.cli import completion, options, output


def command(
    what: str = options.argument(
        "RECIPE|RUN|KIND",
        "A recipe, the folder of a run, or the kind of a part, such as `updater`.",
        complete=completion.complete_show_argument,
    ),
    name: str | None = options.argument(
        "NAME", "Name of the part.", complete=completion.complete_part, default=None
    ),
    set: list[str] = options.SET,
    diff_from_base: bool = options.flag(
        "--diff-from-base",
        "Show only what differs from the recipes that the recipe extends.",
    ),
    json: bool = options.JSON,
) -> None:
    """Show a recipe with all defaults, a part's options, or a run.

    For a run, prints status, steps and return, and the options that differ from the
    built-in recipe.
    """
    words = (what,) if name is None else (what, name)
    if name is None:
        words = (str(options.choose_run(what, keep_study=True)),)
    if json:
        from rlcli.runs.description import show_data  # here, to keep `--help` fast

        data = show_data(*words, set=set, diff_from_base=diff_from_base)
        output.print_json(data)
    else:
        text = rlcli.show(*words, set=set, diff_from_base=diff_from_base)
        output.print_data(text.rstrip("\n"))
