"""Printing: formatted objects and log messages."""

import contextlib
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.utils import enable_logging, pretty_print, pretty_repr


class Point(NamedTuple):
    x: object
    y: object


def test_containers_are_indented_and_arrays_summarised(capsys):
    value = {
        "point": Point(np.array([1.0, 2.0, 6.0]), ()),
        "rest": [1, ("a",), set(), {2}, {}],
    }
    expected = """\
{
  'point': Point(
    x=array(shape=(3,), dtype=float64, min=1, median=2, max=6),
    y=(),
  ),
  'rest': [
    1,
    (
      'a',
    ),
    set(),
    {
      2,
    },
    {},
  ],
}"""
    assert pretty_repr(value) == expected
    pretty_print(value)
    assert capsys.readouterr().out == expected + "\n"


def test_the_depth_indents_entries():
    assert pretty_repr([1], d=1) == "[\n    1,\n  ]"
    assert pretty_repr(len) == repr(len)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((0, 2)), "array(shape=(0, 2), dtype=float64)"),
        (np.array([True]), "array(shape=(1,), dtype=bool)"),
        (np.array(["a"]), "array(shape=(1,), dtype=<U1)"),
        (jnp.array(3), "array(shape=(), dtype=int32, min=3, median=3, max=3)"),
        (jax.random.key(0), "array(shape=(), dtype=key<fry>)"),
    ],
)
def test_arrays_are_described_by_their_statistics(array, text):
    assert pretty_repr(array) == text


def test_a_traced_array_is_described_by_its_shape():
    lines = []
    jax.eval_shape(lambda x: lines.append(pretty_repr(x)), jnp.zeros(2))
    assert lines == ["array(shape=(2,), dtype=float32)"]


def test_recursive_containers_are_printed():
    loop = [1]
    loop.append({"again": loop})
    assert pretty_repr(loop).count("…") == 1


@contextlib.contextmanager
def fresh_root():
    """The root logger of a new Python process, without the handlers of pytest."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    root.handlers = []
    try:
        yield root
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers = before
        root.setLevel(level)


def test_messages_are_printed_from_the_level_with_the_name_of_the_process(capsys):
    with fresh_root() as root:
        enable_logging("actor")
        logging.getLogger("part").info("hello")
        logging.getLogger("part").debug("not shown")
        assert capsys.readouterr().err == "[actor|part|INFO] hello\n"
        enable_logging(level=logging.ERROR)
        logging.getLogger("part").warning("not shown")
        assert capsys.readouterr().err == ""
        assert len(root.handlers) == 1


def test_messages_are_written_to_a_file_from_a_separate_level(tmp_path, capsys):
    path = tmp_path / "logs" / "run.log"
    with fresh_root() as root:
        for _ in range(2):
            enable_logging(output_filepath=path, output_level=logging.DEBUG)
        logging.getLogger("part").debug("detail")
        logging.getLogger("part").info("fact")
        assert path.read_text() == "[part|DEBUG] detail\n[part|INFO] fact\n"
        assert capsys.readouterr().err == "[part|INFO] fact\n"
        enable_logging(level=logging.ERROR, output_filepath=str(path))
        logging.getLogger("part").info("nowhere")
        assert "nowhere" not in path.read_text()
        assert len(root.handlers) == 2
