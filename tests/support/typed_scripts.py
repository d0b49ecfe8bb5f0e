"""Type-checks the scripts of the guides, as a user's editor does it.

    python tests/support/typed_scripts.py PYTHON [MYPY]

Pyright, and mypy if its command is given, check the Python blocks of the guides and
`tests/typed` against the rlcli that is installed for the interpreter PYTHON.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/.]+\.py)\n")


def write_scripts(folder: Path) -> None:
    """Writes the Python blocks of each guide into a folder of its own."""
    for document in sorted((ROOT / "docs" / "guides").glob("*.md")):
        text = document.read_text(encoding="utf-8")
        for number, block in enumerate(BLOCK.findall(text)):
            file = FILE.match(block)
            name = file[1] if file else f"block{number}.py"
            _write(folder / document.stem / name, block)
    for path in sorted((ROOT / "tests" / "typed").glob("*.py")):
        _write(folder / "typed" / path.name, path.read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def find_errors(python: str, *mypy: str) -> str:
    """What the type checkers print; "" if they find no error."""
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", python, "."]
    commands = [pyright]
    # Folders are packages, because two guides may have a file of the same name.
    options = ["--explicit-package-bases", "--check-untyped-defs", "."]
    commands += [[command, "--python-executable", python, *options] for command in mypy]
    output = []
    with tempfile.TemporaryDirectory() as folder:
        write_scripts(Path(folder))
        for command in commands:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                output += [done.stdout, done.stderr]
    return "\n".join(output)


if __name__ == "__main__":
    sys.exit(find_errors(*sys.argv[1:]) or 0)
