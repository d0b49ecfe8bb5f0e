"""Shell completion: what `rlcli` offers after TAB in bash, zsh and fish.

Typer prints the scripts and answers the shells; the functions here, which options and
arguments name as `autocompletion`, list the candidates. None of them imports JAX.
Typer passes its context as `ctx`, whose type is not public.
A shell adds a space to a single candidate, so a folder or a key never stands alone:
what follows it is offered at once.
"""

import contextlib
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli import errors

VARIABLE = "_RLCLI_COMPLETE"  # set by the scripts of the shells
# Characters that no shell changes or runs; a shell inserts a candidate as it is.
_PLAIN = re.compile(r"[\w./+%,@:=-]+")
_RECIPES = ("*.yaml", "*/*.yaml")  # a folder with one of these is offered
_SWEEPS = ("*/study.json", "*/*/study.json", "*/*/*/study.json")
_RUNS = ("*/run.json", "*/*/run.json", *_SWEEPS)  # a study contains runs


def answer_shell(command: Callable[..., object]) -> int:
    """Prints the candidates that a shell asks for, and returns the exit code.

    `command` is the command line of Typer. Nothing else is printed, also if there is
    an error: it would appear within the command line that is being typed.
    """
    is_bash = os.environ[VARIABLE] == "complete_bash"
    candidates, code = io.StringIO(), errors.OK
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        skipped = _join_assignments() if is_bash else 0
        with contextlib.redirect_stdout(candidates):
            try:
                command([], prog_name="rlcli", complete_var=VARIABLE)
            except SystemExit as end:
                code = int(end.code or errors.OK)
        for line in dict.fromkeys(candidates.getvalue().splitlines()):
            if line:  # Typer prints an empty line for no candidates
                sys.stdout.write(f"{line[skipped:]}\n")
    return code


def _join_assignments() -> int:
    """Joins the words that bash separates at `=`: `--set updater=dqn` has four.

    Returns the number of characters of a candidate that bash already has in other
    words.
    """
    words = os.environ["COMP_WORDS"].split("\n")
    words = words[: int(os.environ["COMP_CWORD"]) + 1]
    joined = words[:1]
    for before, word in itertools.pairwise(words):
        is_value = before == "=" and word and not word.startswith("--")
        if word == "=" or is_value:
            joined[-1] += word
        else:
            joined.append(word)
    os.environ["COMP_WORDS"] = "\n".join(joined)
    os.environ["COMP_CWORD"] = str(len(joined) - 1)
    if joined[-1] == words[-1]:
        return 0
    value = joined[-1] if words[-1] == "=" else joined[-1].removesuffix(words[-1])
    # Of `--set=updater=dqn`, Typer completes the value of the option.
    return len(value.partition("=")[2] if value.startswith("-") else value)


def complete_recipe(incomplete: str) -> list[str]:
    """Names of recipes, and YAML files."""
    files = _paths(incomplete, _is_yaml, _RECIPES)
    return [*complete_recipe_name(incomplete), *files]


def complete_recipe_name(incomplete: str) -> list[str]:
    """Names of built-in recipes."""
    from rlcli.recipe.extending import shipped_recipes  # here, to keep `--help` fast

    return [*_matches(shipped_recipes(), incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Folders of runs, and of studies."""
    from rlcli.runs.run_folder import is_run  # here, to keep `--help` fast
    from rlcli.runs.study_record import FILE_NAME

    if not incomplete and Path("runs").is_dir():
        incomplete = "runs/"
    return _paths(
        incomplete,
        lambda folder: (folder / FILE_NAME).is_file() or is_run(folder),
        _RUNS,
    )


def complete_sweep(ctx: Any, incomplete: str) -> list[str]:
    """Recipes and `show` and `export`; after one of these, folders of sweeps."""
    from rlcli.studies.search.layout import is_sweep  # here, to keep `--help` fast

    words = ctx.params.get("words") or []
    if not words:
        verbs = _matches(("show", "export"), incomplete)
        return [*verbs, *complete_recipe(incomplete)]
    if not incomplete and Path("runs/sweeps").is_dir():
        incomplete = "runs/sweeps/"
    return _paths(incomplete, is_sweep, _SWEEPS)


def complete_policy(incomplete: str) -> list[str]:
    """Folders of runs, and policies of the zoo."""
    from rlcli.runs import locate

    policies = [f"{locate.ZOO}/{name}" for name in locate.shipped_policies()]
    return [*complete_run(incomplete), *_matches(policies, incomplete)]


def complete_run_or_recipe(incomplete: str) -> list[str]:
    """Folders of runs, names of recipes, and YAML files."""
    return [*complete_run(incomplete), *complete_recipe(incomplete)]


def complete_render_argument(incomplete: str) -> list[str]:
    """Policies, recipes and environments, which `rlcli render` renders."""
    return [
        *complete_policy(incomplete),
        *complete_recipe(incomplete),
        *complete_environment(incomplete),
    ]


def complete_show_argument(incomplete: str) -> list[str]:
    """Kinds of parts, runs, policies and recipes, which `rlcli show` shows."""
    from rlcli.registry import KINDS  # here, to keep `--help` fast

    return [
        *_matches(KINDS, incomplete),
        *complete_policy(incomplete),
        *complete_recipe(incomplete),
    ]


def complete_kind(incomplete: str) -> list[str]:
    """Kinds of parts, as `rlcli list` prints them."""
    from rlcli.registry import KINDS  # here, to keep `--help` fast

    return [*_matches([*KINDS.values(), "recipes"], incomplete)]


def complete_part(ctx: Any, incomplete: str) -> list[str]:
    """Names of the parts of the kind on the command line."""
    from rlcli.registry import KINDS  # here, to keep `--help` fast

    word = ctx.params.get("what")
    if word in ("recipe", "recipes"):
        return complete_recipe_name(incomplete)
    kinds = [kind for kind, plural in KINDS.items() if word in (kind, plural)]
    return [name for kind in kinds for name in _part_names(kind, incomplete)]


def complete_environment(incomplete: str) -> list[str]:
    """Names of environments; those of other libraries are not listed."""
    return _part_names("environment", incomplete)


def complete_setting(ctx: Any, incomplete: str) -> list[str]:
    """Keys and values of `--set`, for the recipe or run on the command line."""
    from rlcli.recipe import key_completion
    from rlcli.runs.run_folder import Run

    given = ctx.params
    # An option that still lacks its value leaves the arguments before it unassigned.
    assigned = [given.get(key) for key in ("recipe", "recipes", "what", "run")]
    word = next((word for word in (*ctx.args, *assigned) if word), "")
    word = word[0] if isinstance(word, list | tuple) else word
    run = Run(Path(word))
    recipe = run.resolved_recipe if run.resolved_recipe.is_file() else word
    with contextlib.redirect_stdout(io.StringIO()):  # what modules of the user print
        found = key_completion.complete_setting(
            incomplete, str(recipe), given.get("set") or ()
        )
    return _leave_out_special(found)  # the recipe may come from elsewhere


def complete_vary_option(ctx: Any, incomplete: str) -> list[str]:
    """Keys and values of `--vary`, whose last value after a comma is completed."""
    start, comma, last = incomplete.rpartition(",")
    key, equals, _ = start.partition("=")
    if not comma:
        return complete_setting(ctx, incomplete)
    values = complete_setting(ctx, f"{key}{equals}{last}")
    return [f"{start},{value.removeprefix(f'{key}=')}" for value in values]


def complete_word(*words: str) -> Callable[[str], list[str]]:
    """A function that completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [*_matches(words, incomplete)]

    return complete


def _part_names(kind: str, incomplete: str) -> list[str]:
    from rlcli.recipe.part_index import part_names  # here, to keep `--help` fast

    names = _matches(part_names(kind), incomplete)
    return [name for name in names if not name.endswith("/")]


def _matches(words: Iterable[str], incomplete: str) -> Iterator[str]:
    return (word for word in words if word.startswith(incomplete))


def _is_yaml(path: Path) -> bool:
    return path.suffix == ".yaml" and path.is_file()


def _paths(
    incomplete: str, is_item: Callable[[Path], bool], patterns: Sequence[str]
) -> list[str]:
    """The items that a path may continue to, and folders with files like `patterns`."""
    folder, slash, prefix = incomplete.rpartition("/")
    items, folders = [], []
    parent = Path(folder or slash or ".")
    for path in sorted(parent.iterdir()) if parent.is_dir() else ():
        is_hidden = path.name.startswith(".") and not prefix
        if is_hidden or not path.name.startswith(prefix):
            continue
        if is_item(path):
            items.append(f"{folder}{slash}{path.name}")
        elif path.is_dir() and any(any(path.glob(pattern)) for pattern in patterns):
            folders.append(f"{folder}{slash}{path.name}/")
    if not items and len(folders) == 1:
        return _paths(folders[0], is_item, patterns)
    return _leave_out_special([*items, *folders])


def _leave_out_special(candidates: Iterable[str]) -> list[str]:
    """The candidates without characters that a shell may change or run."""
    return [text for text in candidates if _PLAIN.fullmatch(text)]
