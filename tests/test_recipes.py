"""Every recipe that comes with rlcli: it fits together, and lives a whole life."""

import contextlib
import functools
import itertools
import os
import re

import jax
import numpy as np
import pytest
from folders import read_rows
from jax.export import export
from PIL import Image

import rlcli
import rlcli.runs.checkpoint
from rlcli import loop, recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.recipe.schema import FILE as SCHEMA_FILE
from rlcli.recipe.sections import NetworkSpec, Part
from rlcli.training.experiment.program import Program
from rlcli.xla import backend

RECIPES = sorted(recipe.shipped_recipes().items())


@functools.cache
def load(path):
    return recipe.load_recipe(path)


def find_parts(value):
    """Names of what a recipe consists of: parts, heads, and families of environments.

    A family is a package of ours or a library: its environments differ in their rules,
    not in the code that adapts them.
    """
    if isinstance(value, Part):
        name, is_environment = value.name, value.kind == "environment"
        if is_environment and "/" in name:
            name = name.split("/")[0]
        elif is_environment:
            name = value.registered.factory.__module__.rpartition(".")[0]
        yield value.kind, name
    elif isinstance(value, NetworkSpec):
        yield "head", value.head.get("name")
        yield from find_parts(tuple(value))
    elif isinstance(value, dict):
        yield from find_parts(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from find_parts(each)


def choose_recipes():
    """Few recipes that have all parts: always the one with most that are missing."""
    found = {
        name: set(find_parts(tuple(vars(load(path)).values())))
        for name, path in RECIPES
    }
    missing = set().union(*found.values())
    while missing:
        name = max(found, key=lambda name: len(found[name] & missing))
        missing -= found[name]
        yield name


@contextlib.contextmanager
def extras():
    """Skips the rest where it wants an extra that is not installed."""
    try:
        yield
    except RlcliError as error:
        if not error.hint.startswith("pip install "):
            raise
        pytest.skip(error.message)


def every_recipe(quick=None):
    """The parameters of a test of all recipes; all are quick unless some are named."""
    return pytest.mark.parametrize(
        "path",
        [
            pytest.param(
                path,
                id=name,
                marks=() if quick is None or name in quick else pytest.mark.slow,
            )
            for name, path in RECIPES
        ],
    )


@pytest.fixture
def available(path):
    """The recipe, if what it needs is installed."""
    parsed = load(path)
    facts = registry.find("updater", parsed.updater.name).facts
    if "/" in parsed.environment.name or "extra" in facts:
        with extras():
            build(parsed, rendering=True)
    return parsed


@every_recipe(quick={*choose_recipes()})
def test_a_recipe_traces_from_its_first_step_to_what_it_saves(available):
    parsed = available
    progress = Program(parsed, build(parsed)).check()
    agent = jax.tree.leaves(progress.agent)
    assert {leaf.shape[0] for leaf in agent} == {parsed.train.seeds}


QUICKLY_EXPORTED = ("dqn_breakout",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICKLY_EXPORTED else pytest.mark.slow)
        for name, _ in RECIPES
    ],
)
def test_the_programs_of_a_recipe_can_be_lowered_for_a_gpu(name):
    """Without the choices for a CPU, and without a GPU."""
    parsed = recipe.load_recipe(name)
    with extras(), backend.assume_backend("cuda"):
        setup = build(parsed)._replace(devices=1)
        if not setup.environment.pure:
            pytest.skip("runs on the host")
        run = loop.make_loop(setup)
        begin = export(jax.jit(run.begin), platforms=["cuda"])()
        advance = jax.jit(lambda progress: run.advance(progress, 2))
        exported = export(advance, platforms=["cuda"])(jax.eval_shape(run.begin))
    assert begin.platforms == exported.platforms == ("cuda",)
    programs = begin.mlir_module() + exported.mlir_module()
    calls = re.findall(r"custom_call @(\w+)", programs)
    assert not any("lapack" in call or "callback" in call for call in calls)


@every_recipe()
def test_a_recipe_opens_with_what_it_does_and_refers_editors_to_the_schema(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [*itertools.takewhile(lambda line: line.startswith("# "), lines)]
    # `rlcli list` shows the first line.
    assert len(comments[0]) > 20 and comments[0].endswith(".")
    assert comments[-1] == f"# yaml-language-server: $schema={SCHEMA_FILE}"


@pytest.mark.slow
@every_recipe()
def test_a_recipe_trains_resumes_evaluates_and_renders(path, available, tmp_path):
    whole = rlcli.train(path, smoke=True, quiet=True, run=tmp_path / "whole")
    left = tmp_path / "left"
    steps = rlcli.chunks(path, smoke=True, quiet=True, run=left)
    next(steps)
    steps.close()
    rlcli.resume(left, quiet=True)
    ends = [sorted(run.glob("checkpoints/*.pkl.lz4"))[-1] for run in (whole, left)]
    progress, again = (rlcli.runs.checkpoint.read(end)["progress"] for end in ends)
    assert [end.name for end in ends] == [ends[0].name] * 2
    assert set(progress) == set(again)
    unequal = [
        name
        for name, leaf in progress.items()
        if leaf.tobytes() != again[name].tobytes()
    ]
    text = path.read_text(encoding="utf-8")
    if "envpool/" not in text:  # begins new episodes, as its docstring says
        assert unequal == []
        assert read_rows(left) == read_rows(whole)
    result = rlcli.eval(left, episodes=2)
    assert np.isfinite(result["return"]["mean"])
    if "`mujoco`" in text and not {"DISPLAY", "MUJOCO_GL"} & os.environ.keys():
        return  # MuJoCo draws with OpenGL alone
    with extras():  # an environment's own drawing may want one
        film = rlcli.render(left, output=tmp_path / "render.gif")
    with Image.open(film) as picture:
        assert (
            len({pixel for _, pixel in picture.convert("RGB").getcolors(1 << 20)}) > 1
        )
