"""The shape of functions: they nest at most three deep, and are called plainly."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlcli

ROOT = Path(rlcli.__file__).parents[1]
DEEPEST = 3  # functions within functions, such as a factory, a step, and a loop's body


def depths(node: ast.AST, depth: int = 0) -> Iterator[tuple[str, int]]:
    """The functions in a tree, and how many functions each is in, with itself."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function:
            yield child.name, depth + 1
        yield from depths(child, depth + is_function)


def spread_literals(node: ast.AST) -> list[int]:
    """The lines of calls with a tuple written as `*(a, b)`, which hides positions."""
    return [
        call.lineno
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        for argument in call.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
    ]


@pytest.mark.parametrize("folder", ["rlcli", "examples"])
@pytest.mark.slow
def test_functions_nest_at_most_three_deep_and_no_call_spreads_a_literal(folder):
    trees = {
        path: ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")
    }
    assert trees
    deep = [
        f"{path.name}: {name}"
        for path, tree in trees.items()
        for name, depth in depths(tree)
        if depth > DEEPEST
    ]
    spread = [
        f"{path.name}:{line}"
        for path, tree in trees.items()
        for line in spread_literals(tree)
    ]
    assert (deep, spread) == ([], [])


def test_the_check_finds_what_it_forbids():
    source = "def a():\n def b():\n  def c():\n   def d(): f(*(1, 2))"
    tree = ast.parse(source)
    assert dict(depths(tree)) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert spread_literals(tree) == [4]
