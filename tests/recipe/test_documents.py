"""Documents: what YAML means, where it was written, and what is refused."""

from __future__ import annotations

import builtins
import io
import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.replays.datasets.dataset_files import file_digest


def _refusal(text, source="x.yaml"):
    with pytest.raises(RlcliError) as error:
        documents.load_document(text, source)
    return error.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("5e-4", 0.0005),
        ("-2E+3", -2000.0),
        ("1e3", 1000.0),
        ("50_000", 50_000),
        ("+7", 7),
        ("010", 10),
        ("0x1F", 31),
        (".5", 0.5),
        ("1_000.5", 1000.5),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("20%", "20%"),
        ("'1e-3'", "1e-3"),
        ('"50_000"', "50_000"),
        ("!!str 1e-3", "1e-3"),
        ("1:30", "1:30"),
        ("2026-11-20", "2026-11-20"),
        ("true", True),
        ("no", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("-", [None]),
        ("CartPole-v1", "CartPole-v1"),
        ("{a: [1, 2]}", {"a": [1, 2]}),
    ],
)
def test_a_plain_scalar_means_what_people_mean(text, expected):
    value = documents.load_document(
        f"key: {text}" if text != "-" else "key:\n  -"
    ).data["key"]
    assert value == expected and type(value) is type(expected)


def test_not_a_number_is_read_as_one():
    assert math.isnan(documents.load_document("key: .nan").data["key"])


def test_every_value_knows_its_line():
    text = "# first\na:\n  b: 1\n  c: [1,\n     2]\n\nd: {e: {f: 2}}\n"
    document = documents.load_document(text, "x.yaml")
    assert document.find_mark(("a",))[:2] == ("x.yaml", 2)
    assert document.find_mark(("a", "b"))[:2] == ("x.yaml", 3)
    assert document.find_mark(("a", "c", 1))[:2] == ("x.yaml", 5)
    assert document.find_mark(("d", "e", "f"))[:2] == ("x.yaml", 7)
    assert document.find_mark(("a", "unknown", 3))[:2] == ("x.yaml", 2)
    assert document.where(("d", "e")) == "x.yaml:7: "


def test_keys_that_are_numbers_become_text():
    assert documents.load_document("extra: {1: a, true: b}").data == {
        "extra": {"1": "a", "true": "b"}
    }


def test_duplicate_keys_are_refused_with_both_lines():
    error = _refusal("a: 1\nb: 2\na: 3\n")
    assert mentions(error.message, "x.yaml:3: duplicate", "`a`", "line 1")


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n"])
def test_a_tab_is_refused_with_its_line(text):
    error = _refusal(text)
    line = 2 if text.startswith("a:\n\t") else 3
    assert error.message.startswith(f"x.yaml:{line}: YAML does not allow a tab")
    assert error.hint == "replace it with spaces"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "null"])
def test_an_empty_file_is_refused(text):
    assert _refusal(text).message == "x.yaml:1: the file is empty"


def test_a_list_is_refused():
    assert mentions(_refusal("- a\n- b\n").message, "x.yaml:1: ", "a mapping", "a list")


def test_a_lone_word_is_refused():
    assert mentions(_refusal("hello").message, "a mapping", "a single value")


def test_two_documents_in_one_file_are_refused():
    assert _refusal("a: 1\n---\nb: 2\n").message.startswith("x.yaml:2: ")


@pytest.mark.parametrize("text", ["a: [1,\n", "a: 'b\n", "a: *b\n", "a: b: c\n"])
def test_broken_yaml_is_refused_with_a_line(text):
    assert _refusal(text).message.startswith("x.yaml:")


def test_a_control_character_is_refused_with_its_line():
    assert _refusal("a: 1\nb: \x00\n").message.startswith("x.yaml:2: ")


def test_an_alias_may_be_used():
    text = "a: &size [64, 64]\nb: *size\n"
    data = documents.load_document(text).data
    assert data == {"a": [64, 64], "b": [64, 64]}
    assert data["a"] is not data["b"]


def test_an_alias_bomb_is_expanded_to_the_limit_only(monkeypatch):
    expanded, expand = [], documents._Builder.value

    def count(*arguments):
        expanded.append(1)
        return expand(*arguments)

    monkeypatch.setattr(documents._Builder, "value", count)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 30):
        uses = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{uses}]")
    error = _refusal("\n".join(lines))
    assert "more than 20,000 values" in error.message
    assert len(expanded) == 20_001


def test_an_alias_within_itself_is_refused():
    assert "a recursive alias" in _refusal("a: &a [*a]").message


@pytest.mark.parametrize(
    "text", ["[" * 900_000, "- " * 400_000, "{a: " * 200_000, "? " * 400_000]
)
def test_bottomless_nesting_is_refused(text):
    assert "nested more than 50 deep" in _refusal(text).message


def test_merge_keys_and_keys_that_are_no_words_are_refused():
    for text in ("a: &a {x: 1}\nb: {<<: *a}\n", "a: 1\n[1, 2]: 3\n", "a: 1\n~: 3\n"):
        assert _refusal(text).message == "x.yaml:2: this cannot be a key"


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system [ls]",
        "!!python/name:os.system ''",
        "!!binary aGk=",
        "!mine {a: 1}",
        "!!set {a, b}",
        "!!bool maybe",
        "!!null x",
        "!!int abc",
        "!!float 1.2.3",
    ],
)
def test_tags_are_refused_with_their_line(tag):
    error = _refusal(f"a: 1\nb: {tag}\n")
    assert mentions(error.message, "x.yaml:2: ", "tag `")


@pytest.mark.parametrize("text", ["1e999", "9" * 5_000, "0x_"])
def test_a_number_that_is_none_is_refused(text):
    assert "is not a number" in _refusal(f"a: {text}").message


def test_a_large_file_is_refused_before_it_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    opened = []
    for module in (builtins, io):  # `pathlib` calls `io.open`
        monkeypatch.setattr(module, "open", lambda *names, **_: opened.append(names))
    with pytest.raises(RlcliError, match="100,000,000 bytes exceed"):
        documents.load_document(path)
    assert opened == []


def test_a_file_that_grows_or_is_replaced_while_it_is_read_is_bounded(
    tmp_path, monkeypatch
):
    path = tmp_path / "x.yaml"
    open_before = os.open

    def make_pipe():
        path.unlink()
        os.mkfifo(path)

    def read_after(change):
        """Reads the file, which another process changes before it is opened."""
        path.write_text("a: 1\n")

        def open_after(*arguments, **keywords):
            change()
            return open_before(*arguments, **keywords)

        monkeypatch.setattr(os, "open", open_after)
        try:
            documents.load_document(path)
        finally:
            monkeypatch.undo()

    with pytest.raises(RlcliError, match="1,000,001 bytes exceed"):
        read_after(lambda: path.write_bytes(b"#" * 10**7))
    with pytest.raises(RlcliError, match="it is a folder or a device, not a file"):
        read_after(make_pipe)


def test_a_file_of_the_system_that_would_be_waited_for_has_an_end():
    path = Path("/proc/kmsg")
    if not os.access(path, os.R_OK):
        pytest.skip("needs the log of a kernel of Linux, and the right to read it")
    with pytest.raises(RlcliError, match=str(path)):  # whatever the kernel has logged
        documents.load_document(path)
    assert len(file_digest(path)) == 64


def test_a_folder_a_missing_file_and_foreign_text_are_refused(tmp_path):
    with pytest.raises(RlcliError, match="is a folder"):
        documents.load_document(tmp_path)
    with pytest.raises(RlcliError, match="there is no file") as caught:
        documents.load_document(tmp_path / "no.yaml", example="a space is a file")
    assert caught.value.hint == "a space is a file"
    with pytest.raises(RlcliError, match=r"cannot be read|there is no file"):
        documents.load_document(tmp_path / "a\x00b")
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(RlcliError, match=r"latin\.yaml:2: the file is not UTF-8"):
        documents.load_document(path)


def test_a_byte_order_mark_is_no_harm(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert documents.load_document(path).data == {"a": 1}


def test_a_mapping_that_contains_itself_is_refused():
    data: dict = {}
    data["a"] = data
    with pytest.raises(RlcliError, match="more than"):
        documents.from_mapping(data)


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    st.sampled_from(["1e-3", "50_000", "no", "null", "~", "1.", "<<", ".inf", "=", ""]),
)
_words = st.from_regex(r"[a-z_]{1,9}", fullmatch=True)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(_words, inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(_words, _values, min_size=1))
def test_what_is_dumped_is_read_back_the_same(data):
    assert documents.load_document(documents.dump_yaml(data)).data == data


def test_small_values_are_dumped_on_one_line_and_large_ones_indented():
    data = {"a": {"b": [1, 2], "c": "20%"}, "d": {"e": "x" * 50, "f": "y" * 50}}
    text = documents.dump_yaml(data)
    assert text.splitlines()[0] == "a: {b: [1, 2], c: 20%}"
    assert text.splitlines()[1:] == ["d:", f"  e: {'x' * 50}", f"  f: {'y' * 50}"]
    assert yaml.safe_load(text) == data


@pytest.mark.parametrize(
    "text", ["a\nb", "\n", "a\r\nb", "x: y\n# z", "\u2028\x85", ""]
)
def test_any_text_is_yaml_on_one_line(text):
    """Also a key of a section with long values, which has lines of its own."""
    for value in (text, [text], {text: text}):
        line = documents.format_inline(value)
        assert len(line.splitlines()) == 1 and yaml.safe_load(line) == value
    data = {text: {"long": text * 60, "b": [text] * 9}}
    assert yaml.safe_load(documents.dump_yaml(data)) == data


def test_a_message_shows_letters_as_they_are_and_a_file_escapes_them():
    value = {"path": "/home/Jürgen/データ.npz"}
    assert documents.format_inline(value) == "{path: /home/Jürgen/データ.npz}"
    assert documents.dump_yaml(value).isascii()
    assert documents.format_inline("a\u202eb") == r'"a\u202Eb"'  # reorders text
