"""Common names: hints for the names that other libraries and papers use.

Belongs here: tables of names, and their lookup.
May import: errors.

`HINTS` has, for each kind of name, groups of names with one hint. Names are compared
without case, spaces and punctuation: `TD3+BC` is `td3_bc`. Each recipe's YAML in a hint
is valid, and each command works: tests run them.
"""

import re
from collections.abc import Iterable

from rlcli.errors import suggest, suggest_similar
from rlcli.registry.common_names.hints import HINTS as HINTS

_GAMES = "asterix|breakout|freeway|pong|seaquest|spaceinvaders"  # also those of MinAtar
_NO_ADAPTER = "popgym|procgen|jaxmarl"
# Patterns of whole names, in any case, and the hint; `{id}` is the group of this name.
_PATTERNS = (
    (r"(?:openai_?)?gym/(?P<id>.+)", "did you mean `gymnasium/{id}`?"),
    (r"(?:ale|atari)/(?P<id>\w+?)(?:-v\d+)?", "did you mean `gymnasium/ALE/{id}-v5`?"),
    (
        r"(?P<id>\w+?)(?:NoFrameskip|Deterministic)-v\d+",
        "did you mean `gymnasium/ALE/{id}-v5`?",
    ),
    (rf"(?P<id>{_GAMES})-v[45]", "did you mean `gymnasium/ALE/{id}-v5`?"),
    (r"(?P<id>(?:minigrid|babyai)-.+)", "did you mean `gymnasium/{id}`?"),
    (
        r"(?P<id>(?:point|ant)maze_.+|fetch\w+-v\d|adroit.+)",
        "did you mean `gymnasium/{id}`?",
    ),
    (r"(?P<id>xland-.+)", "did you mean `xminigrid/{id}`?"),
    (r"2048", "did you mean `pgx/2048`?"),
    (r"(?P<id>navix-.+)", "did you mean `navix/{id}`?"),
    (r"(?P<id>craftax-.+)", "did you mean `craftax/{id}`?"),
    (
        rf"(?P<id>{_NO_ADAPTER})\b.*",
        "rlcli has no adapter for `{id}`; a plug-in can add one (docs/parts.md)",
    ),
    (
        r"(?P<id>dm_control|dmc|dm)[/_-].+",
        "`gymnasium/MODULE:ID` names an environment that a module registers with "
        "Gymnasium; `rlcli.utils.make_dmc` creates those of DeepMind Control",
    ),
)
_OTHERS = (
    "`rlcli list environments` lists the environments; those of other libraries have "
    "a prefix, such as `gymnasium/ID`"
)


def suggest_environment(name: str, known_names: Iterable[str]) -> str:
    """The hint for an unknown environment, among rlcli's and Gymnasium's.

    Names are compared without case, version and namespace; else by similarity.
    """
    for pattern, hint in _PATTERNS:
        match = re.fullmatch(pattern, name, re.IGNORECASE)
        if match:
            return hint.format(**match.groupdict())
    known_names = list(known_names)
    similar = suggest_similar(name, known_names)
    same = [known for known in known_names if _short(known) == _short(name)]
    registered = _find_gymnasium_id(name)
    if same and similar:
        is_other = registered and registered not in known_names
        other = f" or `gymnasium/{registered}`?"
        return similar.removesuffix("?") + other if is_other else similar
    if registered:
        return f"did you mean `gymnasium/{registered}`?"
    if same:
        return f"did you mean `{max(same)}`?"
    return similar or _OTHERS


def _short(name: str) -> str:
    """A name without library, version, case and punctuation."""
    return normalize_name(re.sub(r"-v\d+$", "", name.rpartition("/")[2]))


def _find_gymnasium_id(name: str) -> str:
    """Gymnasium's newest id of that name; "" if there is none."""
    import gymnasium  # here: errors about other names answer 0.1 s earlier

    specs = [
        spec
        for spec in gymnasium.registry.values()
        if spec.namespace is None and _short(spec.id) == _short(name)
    ]
    return max(specs, key=lambda spec: spec.version or 0).id if specs else ""


def normalize_name(name: str) -> str:
    """A name without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", name.lower())


def find_hint(kind: str, name: str) -> str:
    """The hint for a common name that rlcli does not have; "" if there is none."""
    wanted = normalize_name(name)
    for names, hint in HINTS.get(kind, {}).items():
        if wanted in map(normalize_name, names.split()):
            return hint
    return ""


def suggest_name(kind: str, name: str, known_names: Iterable[str]) -> str:
    """The hint for an unknown name: what it is in rlcli, else the most similar name."""
    if kind == "environment":
        return suggest_environment(name, known_names)
    return find_hint(kind, name) or suggest(name, known_names)
