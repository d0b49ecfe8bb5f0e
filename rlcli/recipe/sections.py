"""Sections: reads each section of a recipe into parts and options."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

from rlcli import registry
from rlcli.errors import RlcliError, quote
from rlcli.recipe import grammar, key_hints
from rlcli.recipe.annotations import has_mark, quote_value
from rlcli.recipe.defaults import (
    default_head,
    default_part,
    list_candidates,
)
from rlcli.recipe.documents import Document, Place, find_file
from rlcli.recipe.grammar import Part
from rlcli.recipe.merging import (
    DEFAULT,
    NETWORK_KEYS,
    SHARED,
    as_mapping,
    is_by_function,
    merge_part,
)
from rlcli.recipe.varied_options import Each, VariedOptions
from rlcli.recipe.varying import recipe_combinations
from rlcli.replays.datasets.names import POLICY_SUFFIX

_MOST_PARTS = 100  # in a list


class NetworkSpec(NamedTuple):
    """The network of a function; without a part it is a head on the shared torso."""

    part: Part | None
    head: Mapping[str, Any]  # only options that the recipe or the updater sets
    memory: Part | None = None  # a recurrent core
    preprocess: tuple[Part, ...] = ()  # applied to observations, in this order


class Sections:
    """The sections of one document; each method reads one section.

    The facts of an updater are its defaults for other sections.
    """

    def __init__(self, document: Document, is_trusted: bool) -> None:
        self.document = document
        self.trusted = is_trusted
        self.data: dict[str, Any] = document.data

    def fail(self, place: Place, message: str, hint: str = "") -> NoReturn:
        """Raises an error about the value at that place, with its file and line."""
        raise RlcliError(f"{self.document.where(place)}{message}", hint)

    def check(self) -> None:
        """Refuses unknown sections, and recipes without environment or updater."""
        if "extends" in self.data:  # a file's own is replaced by the recipes it names
            hint = "write `extends` in a recipe file; the recipe of a run is complete"
            self.fail(("extends",), "`extends` has no effect here", hint)
        for key, value in self.data.items():
            if key not in grammar.SECTIONS:
                is_setting = self.document.find_mark((key,)).is_setting
                hint = key_hints.find_owner(key, value, is_setting=is_setting)
                self.fail((key,), f"a recipe has no section {quote(key)}", hint)
        for kind in ("environment", "updater"):
            if self.data.get(kind) is None:
                hint = f"`rlcli list {kind}s` lists the available ones"
                self.fail((), f"the recipe has no `{kind}`", hint)

    def check_plain(self) -> None:
        """Checks everything that needs no registered part, and thus no JAX."""
        self.check()
        recipe_combinations(self.document)
        self.normalize()
        reader, options = self._reader("train"), self.mapping("train")
        updates = self.updates(reader, options.get("updates", 1), 1)
        options = {"unroll": 1, "start": 0, **options, "updates": updates}
        reader.section(grammar.Train, options)

    def section(self, kind: str, facts: Mapping[str, Any]) -> Part:
        """The part of a section, or the default part with the options it sets."""
        return self.part(kind, self.data.get(kind), default=default_part(kind, facts))

    def optional(self, kind: str, facts: Mapping[str, Any]) -> Part | None:
        """The part of a section; None if the recipe sets null, or nothing has set one.

        It is the replay or the intrinsic reward.
        """
        default = facts.get(kind)
        value = self.data.get(kind, default)
        return None if value is None else self.part(kind, value, default=default)

    def part(
        self,
        kind: str,
        value: Any,
        place: Place = (),
        common: Sequence[str] = (),
        default: Any = None,
    ) -> Part:
        """A part with its options; keys in `common` are not options of the part.

        A value without a `name` changes options of the part `default`, if there is one.
        """
        place = place or (kind,)
        value, is_default = self.complete(kind, value, place, common, default)
        name, name_place = value["name"], (*place, "name")
        label = f"{kind} {quote(name)}"
        self.check_trust(name_place, label, name)
        try:
            factory = registry.find(kind, name).factory
        except RlcliError as error:
            self.fail(name_place, error.message, error.hint)
        parameters = registry.options(factory)
        given_options = {
            key: option
            for key, option in value.items()
            if key != "name" and (key not in common or key in parameters)
        }
        label += " (the default)" * is_default
        reader = grammar.Reader(label, place, self.fail)
        options = reader.options(parameters, given_options, common)
        for key, parameter in parameters.items():
            if has_mark(parameter.annotation, "file") and options[parameter.name]:
                file = find_file(self.document, (*place, key), options[parameter.name])
                options[parameter.name] = file
            elif has_mark(parameter.annotation, "import path"):
                label = f"`{key}` {quote(str(options[parameter.name]))}"
                self.check_trust((*place, key), label, options[parameter.name])
        return Part(kind, name, options)

    def complete(
        self, kind: str, value: Any, place: Place, common: Sequence[str], default: Any
    ) -> tuple[Mapping[str, Any], bool]:
        """The mapping of a part with its name, and whether the name is a default."""
        value = {} if value is None and default is not None else as_mapping(value)
        if not isinstance(value, Mapping):
            message = f"expected the {kind}'s name or a mapping"
            hint = f"for example `{kind}: {{name: …}}`"
            self.fail(place, f"{message}, got {quote_value(value)}", hint)
        is_default = "name" not in value
        if is_default and default is not None:
            value = merge_part(kind, default, value)
        if "name" not in value:
            keys = [key for key in value if key not in common]
            self.fail(place, f"the {kind} has no `name`", list_candidates(kind, keys))
        if not isinstance(name := value["name"], str):
            message = f"`name` of the {kind}: expected str, got {quote_value(name)}"
            self.fail((*place, "name"), message, list_candidates(kind, ()))
        return value, is_default

    def check_trust(self, place: Place, label: str, path: str | None) -> None:
        """Refuses an import path in a recipe that is not trusted."""
        if path and ":" in path and not self.trusted:
            message = f"{label} would import code from outside rlcli"
            self.fail(place, message, "pass `--trust` if you trust its source")

    def environment(self) -> tuple[Part, grammar.Vector]:
        """The environment with its options, and the options of vectorization."""
        value = self.data["environment"]
        parameters = registry.options(grammar.Vector)
        part = self.part("environment", value, common=tuple(parameters))
        options = value if isinstance(value, Mapping) else {}
        options = {key: option for key, option in options.items() if key in parameters}
        facts = part.registered.facts
        limit = facts.get("time_limit")
        empty = {"time_limit": limit, "each": {}, "wrappers": [], "info": {}}
        reader = self._environment_reader(part)
        vector, label = reader.section(grammar.Vector, empty | options), reader.label
        if vector.timeout is not None and not facts.get("adapter"):
            message = f"{label} runs in the compiled program: it has no `timeout`"
            self.fail(("environment", "timeout"), message, "remove `timeout`")
        if vector.levels is not None and facts.get("adapter"):
            message = f"{label} is of another library, which chooses its levels"
            self.fail(("environment", "levels"), message, "remove `levels`")
        if vector.time_limit == "default" != limit:
            message = f"{label} has no default time limit"
            hint = "set `time_limit` to a number of steps, or to null"
            self.fail(("environment", "time_limit"), message, hint)
        return part, vector

    def host_length(
        self, environment: Part, time_limit: int | str | None
    ) -> int | None:
        """The steps of the longest episodes on the host; None if they are compiled.

        The fact `episode_steps` of an adapter is a function of the id that looks up the
        time limit of its library.
        """
        facts = environment.registered.facts
        if not facts.get("adapter"):
            return None
        if isinstance(time_limit, int):
            return time_limit
        find = facts.get("episode_steps") if time_limit else None
        known = find and find(environment.name.partition("/")[2])
        return known or grammar.UNKNOWN_LENGTH

    def wrappers(self, environment: Part, wrappers: Sequence[Any]) -> tuple[Part, ...]:
        """The wrappers of the environment, from the inside out.

        Those of Gymnasium wrap single environments of Gymnasium. Others wrap compiled
        ones, and on the host a vector: these do not need the state of an environment.
        """
        parts = self.parts("wrapper", wrappers, ("environment", "wrappers"))
        wrapped = environment.registered
        label, outer = self._environment_reader(environment).label, ""
        for index, part in enumerate(parts):
            place = ("environment", "wrappers", index)
            facts, own = part.registered.facts, quote(part.name)
            if "library" not in facts:
                outer = outer or own
                if wrapped.facts.get("adapter") and facts.get("compiled"):
                    message = f"wrapper {own} needs a compiled environment"
                    message += f", but {label} runs on the host"
                    self.fail(place, message, "remove it from `wrappers`")
            elif not wrapped.takes("wrappers"):
                message = f"wrapper {own} wraps environments of Gymnasium"
                hint = "`rlcli list wrappers` lists those for all environments"
                self.fail(place, f"{message}, and {label} is none", hint)
            elif outer:
                message = f"wrapper {own} wraps each environment, and {outer} all"
                self.fail(place, message, f"list {own} before {outer}")
        return parts

    def parts(self, kind: str, values: Sequence[Any], place: Place) -> tuple[Part, ...]:
        """A list of parts; each would be traced separately, so there are not many."""
        if len(values) > _MOST_PARTS:
            message = f"{quote(place[-1])} has {len(values):,} parts"
            self.fail(place, message, f"use at most {_MOST_PARTS}")
        return tuple(
            self.part(kind, value, (*place, index))
            for index, value in enumerate(values)
        )

    def each(self, environment: Part, vector: grammar.Vector) -> Each:
        """Numbers of `environment.each`: of each copy, or drawn by every episode."""
        options = self._varied_options(environment, "each", ("environment", "each"))
        return options.read_each(vector.each, self.data["environment"], vector.num_envs)

    def _varied_options(
        self, environment: Part, name: str, place: Place
    ) -> VariedOptions:
        parameters = registry.options(environment.registered.factory)
        takes_any = environment.registered.takes("random_numbers")
        reader = self._environment_reader(environment)
        return VariedOptions(reader, parameters, name, place, takes_any)

    def grid(
        self,
        environment: Part,
        vector: grammar.Vector,
        wrappers: Sequence[Part],
        train: grammar.Train,
    ) -> grammar.Train:
        """The section `train` with the numbers of `evaluate.grid` read."""
        if not train.evaluate.grid:
            return train
        place = ("train", "evaluate", "grid")
        options = self._varied_options(environment, "grid", place)
        grid = options.read_grid(train.evaluate.grid)
        added = [key for key in grid if key not in vector.each]
        for key, part in itertools.product(added, wrappers):
            if part.registered.takes("numbers"):
                label = f"wrapper {quote(part.name)}"
                message = f"{label} would add {quote(key)} in evaluations only"
                self.fail((*place, key), message, f"add `{key}` to `each`, too")
        evaluate = dataclasses.replace(train.evaluate, grid=grid)
        return dataclasses.replace(train, evaluate=evaluate)

    def networks(self, facts: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        """One network for all functions, one for each, or heads on a shared torso."""
        place, value = ("network",), self.data.get("network")
        default, heads = default_part("network", facts), facts.get("heads", {})
        head = functools.partial(default_head, facts)
        if not is_by_function(value, "network", default):
            return {
                key: self.network(value, place, default, head(key))
                for key in (DEFAULT, *heads)
            }
        if SHARED not in value:
            default = merge_part("network", default, value.get(DEFAULT, {}))
            if DEFAULT in value:
                given = value[DEFAULT]
                # In the order of a recipe that is resolved for the first time.
                value = {DEFAULT: given, **dict.fromkeys(heads, given), **value}
            return {
                key: self.network(spec, (*place, key), default, head(key))
                for key, spec in value.items()
            }
        shared_place = (*place, SHARED)
        shared_spec = value[SHARED]
        if isinstance(shared_spec, Mapping) and "head" in shared_spec:
            message = "the shared network has no `head` of its own"
            hint = "set the head of each function, as in `policy: {dueling: true}`"
            self.fail((*shared_place, "head"), message, hint)
        result = {SHARED: self.network(shared_spec, shared_place, default, {})}
        for key, spec in value.items():
            if key != SHARED:
                spec_head = self.head(spec, (*place, key), head(key))
                result[key] = NetworkSpec(None, spec_head)
        return result

    def network(
        self, value: Any, place: Place, default: Any, default_head: Mapping[str, Any]
    ) -> NetworkSpec:
        """A network with the head of its function."""
        part = self.part("network", value, place, NETWORK_KEYS, default)
        given, _ = self.complete("network", value, place, NETWORK_KEYS, default)
        head = self.head(given.get("head"), (*place, "head"), default_head)
        memory = given.get("memory")
        if memory is not None:
            memory = self.part("memory", memory, (*place, "memory"))
        return NetworkSpec(part, head, memory, self.preprocess(given, place))

    def preprocess(self, options: Mapping[str, Any], place: Place) -> tuple[Part, ...]:
        """The preprocessing functions of a network, in order."""
        place, value = (*place, "preprocess"), options.get("preprocess") or []
        if not isinstance(value, list):
            message = f"`preprocess`: expected a list, got {quote_value(value)}"
            self.fail(place, message, "for example `preprocess: [one_hot]`")
        return self.parts("preprocess", value, place)

    def head(
        self, value: Any, place: Place, default: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The options of a head, without the name where `scalar` goes without saying.

        A head without a name changes the updater's default head.
        """
        given_options = self._as_mapping(place, as_mapping(value))
        if "name" not in given_options:
            given_options = {"name": "scalar", **default, **given_options}
        part = self.part("head", given_options, place)
        given = {k: option for k, option in part.options.items() if k in given_options}
        # Not every function accepts the name, but those with a default head do. Without
        # name and options it would be that default where the recipe is read again.
        if part.name == "scalar" and (given or not default):
            return given
        return {"name": part.name, **part.options}

    def optimizers(self, facts: Mapping[str, Any]) -> dict[str, Part]:
        """One optimizer for all parameters, or one for each group."""
        value, default = self.data.get("optimizer"), default_part("optimizer", facts)
        if not is_by_function(value, "optimizer", default):
            return {DEFAULT: self.part("optimizer", value, default=default)}
        default = merge_part("optimizer", default, value.get(DEFAULT, {}))
        return {
            name: self.part("optimizer", spec, ("optimizer", name), default=default)
            for name, spec in {DEFAULT: default, **value}.items()
        }

    def train(
        self,
        environment: Part,
        vector: grammar.Vector,
        facts: Mapping[str, Any],
        replay: Part | None,
    ) -> grammar.Train:
        """The section `train`, with the defaults that depend on other sections."""
        options = dict(self.mapping("train"))
        reader, parameters = self._reader("train"), registry.options(grammar.Train)
        steps = reader.option("steps", parameters["steps"], options)
        unroll = 1 if replay else facts.get("unroll", 1)
        reset = facts.get("reset", False)
        options = {"unroll": unroll, "updates": 1, "reset": reset} | options
        # Fill the replay with some steps before the first update.
        fills_replay = replay and not replay.registered.facts.get("offline", False)
        options = {"start": min(1_000, steps // 10) if fills_replay else 0} | options
        size = reader.option("unroll", parameters["unroll"], options) * vector.num_envs
        options["updates"] = self.updates(reader, options["updates"], size)
        evaluate = options.get("evaluate", {})
        if isinstance(evaluate, Mapping) and "every" not in evaluate:
            given = evaluate.get("episodes")
            episodes = given if isinstance(given, int) and given > 0 else None
            length = self.host_length(environment, vector.time_limit)
            default = grammar.default_evaluation(steps, size, episodes, length)
            options["evaluate"] = {**default, **evaluate}
        train = reader.section(grammar.Train, options)
        train = dataclasses.replace(
            train,
            trackers=self.parts("tracker", train.trackers, ("train", "trackers")),
            hooks=self.parts("hook", train.hooks, ("train", "hooks")),
        )
        problems = grammar.contradictions(train, vector.num_envs, replay is not None)
        for place, message, hint in problems:
            self.fail(place, message, hint)
        return train

    def _reader(self, name: str) -> grammar.Reader:
        return grammar.Reader(f"section `{name}`", (name,), self.fail)

    def _environment_reader(self, environment: Part) -> grammar.Reader:
        label = f"environment {quote(environment.name)}"
        return grammar.Reader(label, ("environment",), self.fail)

    def normalize(self) -> grammar.Normalize:
        """The section `normalize`."""
        options = self.mapping("normalize")
        return self._reader("normalize").section(grammar.Normalize, options)

    def init(self) -> grammar.Init | None:
        """The section `init`, with an absolute path; None if the recipe has none."""
        value = self.data.get("init")
        if value is None:
            return None
        options = {"from": value} if isinstance(value, str) else self.mapping("init")
        init = self._reader("init").section(grammar.Init, options)
        source = find_file(self.document, ("init", "from"), init.from_, POLICY_SUFFIX)
        return dataclasses.replace(init, from_=source)

    def freeze(self) -> dict[str, Any]:
        """The section `freeze`: the step up to which parts are frozen, or True."""
        value = self.data.get("freeze")
        if value is None:
            return {}
        reader = grammar.Reader("the recipe", (), self.fail)
        parts = reader.value(grammar.Freeze, value, ("freeze",))
        return parts if isinstance(parts, dict) else dict.fromkeys(parts, True)

    def updates(self, reader: grammar.Reader, value: Any, steps: int) -> Fraction:
        """Updates per iteration; `{per_step: …}` is multiplied by its `steps`."""
        place = ("train", "updates")
        if not isinstance(value, Mapping):
            return Fraction(reader.value(grammar.PositiveInt, value, place))
        per_step = reader.value(grammar.PerStep, value, place)["per_step"]
        # Via text: a recipe means exactly 1/10 by 0.1, and the binary float differs.
        return Fraction(str(per_step)).limit_denominator(1_000) * steps

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A section that is a mapping; {} if it is absent."""
        return self._as_mapping((name,), self.data.get(name))

    def _as_mapping(self, place: Place, value: Any) -> Mapping[str, Any]:
        if value is not None and not isinstance(value, Mapping):
            message = f"expected a mapping, got {quote_value(value)}"
            self.fail(place, f"{quote(place[-1])}: {message}")
        return {} if value is None else value
