"""`rlcli schema`: the JSON Schema of recipes, for editors."""

from pathlib import Path

import rlcli
from rlcli.cli import options, output


def command(
    output_: Path | None = options.option(
        "--output FILE", "Write the schema to FILE, not to stdout."
    ),
) -> None:
    """Print the JSON Schema of recipes, with all installed parts.

    An editor completes and checks a recipe that has the comment
    `# yaml-language-server: $schema=FILE`.
    """
    schema = rlcli.schema(output=output_)
    output.print_data(output.as_json(schema) if output_ is None else output_)
