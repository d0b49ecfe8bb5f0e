"""Settings: what `--set` replaces, and where errors say that it was set."""

from __future__ import annotations

import pytest

from rlcli.errors import RlcliError
from rlcli.recipe import documents
from rlcli.recipe.settings import apply_settings


def test_set_replaces_adds_and_reads_yaml():
    document = documents.load_document("train: {steps: 5}\nlist: [{a: 1}]\n", "x.yaml")
    sets = ["train.steps=1e3", "train.log.every=null", "list.0.a=[1, x]", "new=a=b"]
    data = apply_settings(document, sets).data
    assert data == {
        "train": {"steps": 1000.0, "log": {"every": None}},
        "list": [{"a": [1, "x"]}],
        "new": "a=b",
    }
    assert document.data["train"] == {"steps": 5}


def test_set_below_a_bare_name_keeps_the_name():
    document = documents.load_document("policy: sampled\n")
    data = apply_settings(document, ["policy.epsilon=0.1"]).data
    assert data == {"policy": {"name": "sampled", "epsilon": 0.1}}
    assert apply_settings(document, ["policy=random"]).data == {"policy": "random"}


def test_what_was_set_is_where_it_was_set():
    document = documents.load_document("a: {b: 1, c: 2}\n", "x.yaml")
    merged = apply_settings(document, ["a.b={d: 3}"])
    assert merged.where(("a", "b", "d")) == "--set a.b={d: 3}: "
    assert merged.where(("a", "c")) == "x.yaml:1: "


def test_an_enclosing_section_that_a_set_created_is_where_it_was_set():
    document = documents.load_document("a: 1\n", "x.yaml")
    merged = apply_settings(document, ["b.c.d=2"])
    assert merged.where(("b",)) == "--set b.c.d=2: "
    assert merged.where(("a",)) == "x.yaml:1: "
    assert merged.where() == "x.yaml:1: "


@pytest.mark.parametrize(
    ("each", "message"),
    [
        ("train.steps", "expected `key=value`"),
        ("=5", "expected `key=value`"),
        ("a..b=5", "expected `key=value`"),
        ("a.b=1", "`a` is 5, which has no options"),
        ("l.7=1", "`l` has no entry `7`"),
        ("l.x=1", "`l` has no entry `x`"),
        ("a=[1", "--set a=[1: "),
        ("a=!!python/name:os.system", "the tag"),
    ],
)
def test_a_set_that_cannot_be_is_refused_with_itself(each, message):
    document = documents.load_document("a: 5\nl: [1]\n")
    with pytest.raises(RlcliError) as error:
        apply_settings(document, [each])
    assert error.value.message.startswith(f"--set {each}: ")
    assert message in error.value.message
