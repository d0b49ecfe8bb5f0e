"""The page "From YAML to gradient": the functions that PPO calls, in their order."""

import re
import sys
from pathlib import Path

import jax
import pytest
import yaml

import rlcli
from rlcli import loop, recipe
from rlcli.assembly import build

ROOT = Path(rlcli.__file__).parent
PAGE = (ROOT.parent / "docs" / "gradient.md").read_text(encoding="utf-8")
STOPS = [
    tuple(stop) for stop in re.findall(r"^\| `([\w/]+\.py) · (\w+)` \|", PAGE, re.M)
]
FILES = {file for file, _ in STOPS} | {*re.findall(r"`([\w/]+\.py)`", PAGE)}


@pytest.fixture(scope="module")
def calls():
    """The functions of rlcli that are called, in the order of their first call."""
    found = {}

    def record(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            file = str(Path(code.co_filename).relative_to(ROOT))
            found.setdefault((file, code.co_name))

    build(recipe.load_recipe("ppo_cartpole"))  # imports modules, which call decorators
    sys.setprofile(record)
    try:
        setup = build(recipe.load_recipe("ppo_cartpole"))
        run = loop.make_loop(setup._replace(devices=1))
        jax.eval_shape(
            lambda progress: run.advance(progress, 1), jax.eval_shape(run.begin)
        )
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.mark.parametrize("stop", STOPS, ids="·".join)
def test_a_function_of_the_page_is_called(stop, calls):
    assert stop in calls


def test_each_part_of_the_page_begins_after_the_one_before(calls):
    sections = re.split(r"^## \d\. .+$", PAGE, flags=re.MULTILINE)[1:]
    firsts = [
        calls.index(re.search(r"^\| `([\w/]+\.py) · (\w+)` \|", text, re.M).groups())
        for text in sections
    ]
    assert len(firsts) == 5
    assert firsts == sorted(firsts)


def test_the_page_names_every_file_of_the_algorithm(calls):
    """Those of updaters and tracers that PPO calls; the page leaves none out."""
    called = {file for file, _ in calls if file.startswith(("updaters/", "tracers/"))}
    unnamed = called - FILES
    assert {file for file in unnamed if not file.endswith("__init__.py")} <= {
        "updaters/burn_in.py",  # for recurrent networks
        "updaters/optimizers.py",  # optax's, by name
    }


def test_the_page_names_files_that_exist():
    assert all((ROOT / file).is_file() for file in FILES)


def test_the_recipe_of_the_page_is_the_built_in_one():
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.DOTALL)
    shipped = (ROOT.parent / "recipes" / "ppo_cartpole.yaml").read_text("utf-8")
    assert yaml.safe_load(text) == yaml.safe_load(shipped)
