"""`rlcli list`: lists parts and recipes."""

import rlcli
from rlcli.cli import completion, options, output


def command(
    kind: str | None = options.argument(
        "KIND",
        "Only this kind, singular or plural: `updaters`, `recipes`.",
        complete=completion.complete_kind,
        default=None,
    ),
    json: bool = options.JSON,
) -> None:
    """List the available parts and recipes."""
    kinds = rlcli.list(kind)
    if json:
        output.print_json(kinds)
        return
    for kind_name, entries in kinds.items():
        traits = [key for key in dict(*entries[:1]) if key not in ("name", "summary")]
        if len(kinds) == 1 and traits:
            columns, header = ["name", *traits], [[kind_name, *traits]]
        else:
            columns, header = ["name", "summary"], []
            output.print_data(kind_name)
        rows = [[entry[column] for column in columns] for entry in entries]
        output.print_rows([*header, *rows])
