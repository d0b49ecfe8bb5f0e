"""Sections: what each section of a recipe says, read into parts and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

from rlcli import registry
from rlcli.errors import RlcliError, nearest, quote
from rlcli.recipe import grammar
from rlcli.recipe.annotations import shown
from rlcli.recipe.documents import Document, Place

DEFAULT = "default"  # the network, or optimizer, of functions that are not named
SHARED = "shared"  # the network whose parameters all functions use


class Part(NamedTuple):
    """A part that a recipe names; options by their names in Python, all filled in."""

    kind: str
    name: str
    options: Mapping[str, Any]  # with Schedules where the recipe has some


class NetworkSpec(NamedTuple):
    """The network of a function; without a part it is a head on the shared one."""

    part: Part | None
    head: Mapping[str, Any]  # only what the recipe or the updater sets
    memory: Part | None = None  # what it carries from step to step, if anything
    preprocess: tuple[Part, ...] = ()  # what becomes of observations before all


class Sections:
    """The sections of one document; each method reads one.

    An updater's facts are the defaults it brings for other sections.
    """

    def __init__(self, document: Document, trusted: bool) -> None:
        self.document = document
        self.trusted = trusted
        self.data: dict[str, Any] = document.data

    def fail(self, place: Place, message: str, hint: str = "") -> NoReturn:
        """Refuses the value at that place, with its file and line."""
        raise RlcliError(f"{self.document.where(place)}{message}", hint)

    def check(self) -> None:
        """Refuses unknown sections, and a recipe without one of the two it needs."""
        for key, value in self.data.items():
            self._later("section", (key,), grammar.LATER_SECTIONS, value)
            known = (*grammar.SECTIONS, *grammar.LATER_SECTIONS)
            if key not in known:
                hint = nearest(key, known)
                self.fail((key,), f"a recipe has no section {quote(key)}", hint)
        for kind in ("environment", "updater"):
            if self.data.get(kind) is None:
                hint = f"`rlcli list {kind}s` names what there is"
                self.fail((), f"the recipe has no `{kind}`", hint)

    def default(self, kind: str, facts: Mapping[str, Any], otherwise: str) -> Part:
        """A section, or what the updater has for it, or what anybody would take."""
        given = self.data.get(kind)
        return self.part(kind, facts.get(kind, otherwise) if given is None else given)

    def part(
        self, kind: str, value: Any, place: Place = (), common: Sequence[str] = ()
    ) -> Part:
        """A part and its options, but for keys in `common`, which are not its own."""
        place = place or (kind,)
        value = {"name": value} if isinstance(value, str) else value
        if not isinstance(value, Mapping):
            message = f"expected the {kind}'s name or a mapping, got {shown(value)}"
            self.fail(place, message, f"such as `{kind}: {{name: …}}`")
        name = self.name(kind, value.get("name"), place)
        known = registry.options(self.registered(kind, name, place).factory)
        given = {
            key: each
            for key, each in value.items()
            if key != "name" and (key not in common or key in known)
        }
        later = grammar.LATER_OPTIONS.get(kind, ())
        for key in [each for each in given if each not in known]:
            self._later("option", (*place, key), later, given[key])
            if key in later:
                del given[key]
        reader = grammar.Reader(f"{kind} {quote(name)}", place, self.fail)
        return Part(kind, name, reader.options(known, given, common))

    def name(self, kind: str, value: Any, place: Place) -> str:
        """The name of a part, which has to be text."""
        hint = f"`rlcli list {registry.KINDS[kind]}` names what there is"
        if value is None:
            self.fail(place, f"the {kind} has no `name`", hint)
        if not isinstance(value, str):
            message = f"the {kind} has no `name`: expected text, got {shown(value)}"
            self.fail((*place, "name"), message, hint)
        return value

    def registered(self, kind: str, name: str, place: Place) -> registry.Registered:
        """The part of that name, unless it would run code that nobody vouches for."""
        at = (*place, "name")
        if ":" in name and not self.trusted:
            message = f"the {kind} {quote(name)} would import code that is not rlcli's"
            self.fail(at, message, "if you trust where it comes from, pass `--trust`")
        try:
            return registry.find(kind, name)
        except RlcliError as error:
            self.fail(at, error.message, error.hint)

    def environment(self) -> tuple[Part, grammar.Vector]:
        """The environment's factory with its options, and how many of it there are."""
        value = self.data["environment"]
        known = registry.options(grammar.Vector)
        part = self.part("environment", value, common=tuple(known))
        given = value if isinstance(value, Mapping) else {}
        given = {key: each for key, each in given.items() if key in known}
        facts = registry.find("environment", part.name).facts
        limit = facts.get("time_limit")
        given = {"time_limit": limit, "each": {}, "wrappers": []} | given
        label = f"environment {quote(part.name)}"
        reader = grammar.Reader(label, ("environment",), self.fail)
        vector = grammar.Vector(**reader.options(known, given))
        if vector.timeout is not None and not facts.get("adapter"):
            message = f"{label} runs in the compiled program: it has no `timeout`"
            self.fail(("environment", "timeout"), message, "leave it out")
        if vector.time_limit == "default" != limit:
            message = f"{label} has no time limit to take as default"
            self.fail(("environment", "time_limit"), message, "give steps, or null")
        return part, vector

    def wrappers(self, environment: Part, given: Sequence[Any]) -> tuple[Part, ...]:
        """What the environment is wrapped in, from the inside out."""
        place = ("environment", "wrappers")
        facts = registry.find("environment", environment.name).facts
        if given and facts.get("adapter"):
            message = f"environment {quote(environment.name)} runs on the host"
            self.fail(place, f"{message}: it takes no `wrappers`", "leave them out")
        return tuple(
            self.part("wrapper", value, (*place, index))
            for index, value in enumerate(given)
        )

    def each(
        self, environment: Part, given: Mapping[str, list[Any]], num_envs: int
    ) -> dict[str, list[float]]:
        """For some keywords of the environment one number for each of it, by turns."""
        known = registry.options(registry.find("environment", environment.name).factory)
        label = f"environment {quote(environment.name)}"
        reader = grammar.Reader(label, ("environment",), self.fail)
        return reader.each(known, given, self.data["environment"], num_envs)

    def networks(self, facts: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        """One for all functions, or one by one, or heads on a shared one."""
        place = ("network",)
        value = self.data.get("network")
        value = facts.get("network", "mlp") if value is None else value
        head = facts.get("head", {})
        if not isinstance(value, Mapping) or "name" in value:
            return {DEFAULT: self.network(value, place, head)}
        if not value or set(value) & {"head", "layers", "preprocess", "memory"}:
            hint = "`rlcli list networks` names what there is"
            self.fail(place, "the network has no `name`", hint)
        if SHARED not in value:
            return {
                key: self.network(each, (*place, key), head)
                for key, each in value.items()
            }
        at = (*place, SHARED)
        shared = value[SHARED]
        if isinstance(shared, Mapping) and "head" in shared:
            message = "the shared network has no `head` of its own"
            hint = "give one to each function, as in `policy: {dueling: true}`"
            self.fail((*at, "head"), message, hint)
        result = {SHARED: self.network(shared, at, {})}
        for key, each in value.items():
            if key != SHARED:
                options = self.head(each, (*place, key))
                result[key] = NetworkSpec(None, {**head, **options})
        return result

    def network(
        self, value: Any, place: Place, default: Mapping[str, Any]
    ) -> NetworkSpec:
        """A network and the head of its function."""
        common = ("head", "memory", "preprocess")
        part = self.part("network", value, place, common)
        given = value if isinstance(value, Mapping) else {}
        head, memory = given.get("head"), given.get("memory")
        options = default if head is None else self.head(head, (*place, "head"))
        if memory is not None:
            memory = self.part("memory", memory, (*place, "memory"))
        return NetworkSpec(part, dict(options), memory, self.preprocess(given, place))

    def preprocess(self, given: Mapping[str, Any], place: Place) -> tuple[Part, ...]:
        """What becomes of observations, one after the other."""
        place, value = (*place, "preprocess"), given.get("preprocess") or []
        if not isinstance(value, list):
            message = f"`preprocess`: expected a list, got {shown(value)}"
            self.fail(place, message, "such as `preprocess: [one_hot]`")
        return tuple(
            self.part("preprocess", each, (*place, index))
            for index, each in enumerate(value)
        )

    def head(self, value: Any, place: Place) -> dict[str, Any]:
        """What is said about a head, beside its name."""
        value = {"name": value} if isinstance(value, str) else value
        given = dict(self.mapping(place, value))
        name = given.pop("name", "scalar")
        from rlcli.networks import heads  # here, since it imports JAX

        if not isinstance(name, str) or name not in heads.NAMED:
            hint = nearest(str(name), heads.NAMED)
            self.fail((*place, "name"), f"there is no head {quote(name)}", hint)
        known = registry.options(heads.NAMED[name])
        reader = grammar.Reader(f"head `{name}`", place, self.fail)
        options = reader.options(known, given)
        if name == "scalar":  # which not every function knows by name
            return {key: options[key] for key in options if key in given}
        return {"name": name, **options}

    def optimizers(self) -> dict[str, Part]:
        """One for all parameters, or by group."""
        value = self.data.get("optimizer")
        value = "adam" if value is None else value
        if not isinstance(value, Mapping) or "name" in value:
            return {DEFAULT: self.part("optimizer", value)}
        loose = [key for key, each in value.items() if not _names_a_part(each)]
        if loose or not value:
            hint = "`optimizer: {name: adam, …}`, or one for each function"
            self.fail(("optimizer", *loose[:1]), "the optimizer has no `name`", hint)
        groups = {DEFAULT: "adam", **value}
        return {
            name: self.part("optimizer", each, ("optimizer", name))
            for name, each in groups.items()
        }

    def train(
        self, unroll: int, num_envs: int, replayed: bool, reset: bool = False
    ) -> grammar.Train:
        """The section `train`, with the defaults that depend on other sections."""
        given = dict(self.mapping(("train",), self.data.get("train")))
        reader = grammar.Reader("section `train`", ("train",), self.fail)
        known = registry.options(grammar.Train)
        steps = reader.option("steps", known["steps"], given)
        given = {"unroll": unroll, "updates": 1, "reset": reset} | given
        # Some steps to choose among, before they are learnt from.
        given = {"start": min(1_000, steps // 10) if replayed else 0} | given
        unroll = reader.option("unroll", known["unroll"], given)
        updates = self.updates(reader, given["updates"], unroll * num_envs)
        given["updates"] = updates
        train = grammar.Train(**reader.options(known, given))
        for place, message, hint in grammar.contradictions(train, num_envs, replayed):
            self.fail(place, message, hint)
        return train

    def normalize(self) -> grammar.Normalize:
        """The section `normalize`."""
        place = ("normalize",)
        given = self.mapping(place, self.data.get("normalize"))
        reader = grammar.Reader("section `normalize`", place, self.fail)
        known = registry.options(grammar.Normalize)
        return grammar.Normalize(**reader.options(known, given))

    def updates(self, reader: grammar.Reader, value: Any, visit: int) -> Fraction:
        """How many updates a visit makes, from its steps where it is said per step."""
        place = ("train", "updates")
        if not isinstance(value, Mapping):
            return Fraction(reader.value(grammar.Counted, value, place))
        per_step = reader.value(grammar.PerStep, value, place)["per_step"]
        # As text, for 0.1 is a tenth to people, and an awkward number in binary.
        return Fraction(str(per_step)).limit_denominator(1_000) * visit

    def mapping(self, place: Place, value: Any) -> Mapping[str, Any]:
        """A section that is a mapping, or nothing."""
        if value is not None and not isinstance(value, Mapping):
            message = f"{quote(place[-1])}: expected a mapping, got {shown(value)}"
            self.fail(place, message)
        return {} if value is None else value

    def _later(self, what: str, place: Place, later: Sequence[str], value: Any) -> None:
        if value and place[-1] in later:
            self.fail(
                place, f"{what} {quote(place[-1])} is not in this version of rlcli"
            )


def _names_a_part(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "name" in value)
