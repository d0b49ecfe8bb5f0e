"""Random values, texts and bytes: what the cases of fuzzing are made of."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

DIGITS = "9" * 400
NUMBERS = (
    *(0, -1, 1, 2, 3, 10, 100, 0.5, 1e-50, 1e39, -1e39, 1e308, 2**31 - 1, 2**31),
    *(2**53, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, -0.0, 1e18),
    *(float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *("", "x", "null", "true", "mlp", "adam", "CartPole-v1", "q_learning", "ppo"),
    *("os:system", "builtins:eval", "fuzz_canary:part", "fuzz_canary", "a:b:c", ":"),
    *("gymnasium/CartPole-v1", "gymnasium/fuzz_canary:Env-v0", "x/y", "..", "/"),
    *("../../../../etc/passwd", "/dev/zero", "zoo/ppo_cartpole", "~", "-", "--help"),
    *("\x1b[31m\u202e", "a\n\nb", "\0", "\ufeff", "\ud800", "é" * 300, "x" * 70_000),
    *(DIGITS, "1e999", f"1e{DIGITS}", "1_0", "50%", "10:20", "2026-11-23", "0x1F"),
    *("!!python/object/apply:os.system ['true']", "!!python/name:os.system", "<<"),
    *("*a", "&a [*a, *a]", "{{7*7}}", "${HOME}", "$(true)", "`true`", "%s%n"),
)
DOCUMENTS = (
    *("!!python/object/apply:os.system ['true']", "!!python/name:fuzz_canary.part"),
    *(
        "&a [*a]",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "<<: {a: 1}",
        "%YAML 9.9",
    ),
    *(
        "- [" * 500,
        "{" * 500,
        "? ? ?",
        "\t",
        "---\n---\n",
        "a: b: c",
        "'",
        "\0",
        "\ufeff",
    ),
    *(f"train: {{steps: {DIGITS}}}", "extends: fuzz", "extends: [dqn_cartpole, ../x]"),
)


def value(draw: random.Random, depth: int = 0) -> Any:
    """A random value of plain data."""
    kind = draw.randrange(10 if depth < 4 else 7)
    if kind < 3:
        return draw.choice(NUMBERS)
    if kind < 6:
        return draw.choice(TEXTS)
    if kind < 7:
        return draw.choice((None, True, False))
    items = [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind < 8:
        return items
    return {draw.choice(TEXTS): item for item in items}


def change(draw: random.Random, data: Any) -> Any:
    """The data with one part replaced, removed, repeated or renamed, anywhere in it."""
    if not isinstance(data, dict | list) or not data or draw.random() < 0.15:
        return value(draw)
    if isinstance(data, dict):
        key = draw.choice([*data])
        copy = dict(data)
        action = draw.random()
        if action < 0.1:
            del copy[key]
        elif action < 0.2:
            copy[draw.choice(TEXTS)] = copy.pop(key)
        else:
            copy[key] = change(draw, data[key])
        return copy
    index = draw.randrange(len(data))
    items = [*data]
    if draw.random() < 0.2:
        items.insert(index, items[index])
    else:
        items[index] = change(draw, items[index])
    return items


def mutate(draw: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The bytes with some of them changed, removed, repeated or replaced."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        at, end = sorted(draw.randrange(len(out) + 1) for _ in range(2))
        end = min(end, at + draw.choice((1, 1, 4, 64, 4_096)))
        action = draw.randrange(6)
        if action == 0:
            out[at:end] = draw.randbytes(end - at)
        elif action == 1 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif action == 2:
            del out[at:end]
        elif action == 3:
            out[at:at] = out[at:end] * draw.choice((1, 2, 50))
        elif action == 4:
            text = draw.choice((*TEXTS, *DOCUMENTS))
            out[at:end] = text.encode("utf-8", "surrogatepass")
        else:
            other = draw.choice((*others, b"", b"\xff" * 8, b"\x00" * 64))
            out[at:end] = other[: draw.choice((1, 16, 4_096))]
    return bytes(out)


def from_schema(
    draw: random.Random, schema: Mapping[str, Any], root: Any = None
) -> Any:
    """A random value that a JSON Schema accepts, except for one part in twenty."""
    root = schema if root is None else root
    if draw.random() < 0.03:
        return value(draw)
    while "$ref" in schema:
        target = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            target = target[name.replace("~1", "/").replace("~0", "~")]
        schema = target
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return from_schema(draw, draw.choice(schema[key]), root)
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            found = from_schema(draw, part, root)
            merged |= found if isinstance(found, dict) else {}
        return merged
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    return _of_type(draw, schema, root)


def _of_type(draw: random.Random, schema: Mapping[str, Any], root: Any) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = draw.choice(kind)
    if kind == "object":
        names = [*schema.get("properties", {})]
        chosen = {*schema.get("required", ())} & {*names}
        share = draw.choice((0.05, 0.2, 0.8))
        chosen |= {name for name in names if draw.random() < share}
        return {
            name: from_schema(draw, schema["properties"][name], root)
            for name in names
            if name in chosen
        }
    if kind == "array":
        item = schema.get("items", {})
        count = draw.randrange(schema.get("minItems", 0), 4)
        return [from_schema(draw, item, root) for _ in range(count)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        number = low + draw.choice((0, 1, 2, 7, 64, 1_000))
        return number if kind == "integer" else number + draw.choice((0, 0.5, 1e-3))
    if kind == "string":
        return draw.choice(TEXTS)
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "null":
        return None
    return value(draw)


def to_json(data: Any) -> bytes:
    """JSON, which is YAML as well."""
    return json.dumps(data, ensure_ascii=True).encode()
