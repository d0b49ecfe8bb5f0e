"""Executes a notebook, and stores its outputs in it: `python execute.py results.ipynb`.

Jupyter does it where it is installed (`pip install nbclient ipykernel`). Without it the
cells run in this process.
"""

import ast
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def execute(path: Path) -> None:
    if find_spec("nbclient") and find_spec("ipykernel"):
        import nbclient
        import nbformat

        notebook = nbformat.read(path, as_version=4)
        nbclient.NotebookClient(notebook, timeout=300).execute()
        nbformat.write(notebook, path)
        return
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(codes, 1):
        value = run_cell("".join(cell["source"]), names)
        data = show(value)
        output = {"output_type": "execute_result", "data": data, "metadata": {}}
        cell["execution_count"] = number
        cell["outputs"] = [output | {"execution_count": number}] if data else []
    path.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs the statements of a cell; the value of a last expression, or None."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def show(value: Any) -> dict[str, str]:
    """The value as Jupyter stores it: as text, and as HTML if it has that."""
    if value is None:
        return {}
    html = getattr(value, "_repr_html_", None)
    return {"text/plain": repr(value)} | ({"text/html": html()} if html else {})


if __name__ == "__main__":
    execute(Path(sys.argv[1]))
