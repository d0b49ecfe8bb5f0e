"""Random combinations of parts: recipes that the JSON Schema describes, and small.

The names and options of all parts come from the schema; what is drawn here is which of
them a recipe names, so that about a third of the recipes are valid.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import odd_environments

import rlcli

COLLECTED = "collected.npz"  # the data set that a case needs, made for its environment
_NATIVE = {  # by their actions
    "Discrete": (
        *("Acrobot-v1", "BernoulliBandit-v0", "BitFlip-v0", "Blackjack-v1"),
        *("CartPole-v1", "CliffWalking-v1", "ConnectFour-v0", "FourRooms-v0"),
        *("FrozenLake-v1", "GaussianBandit-v0", "GridWorld-v0", "KArmedBandit-v0"),
        *("MinAtar/Breakout-v1", "MinAtar/Asterix-v1", "MiniGrid-Empty-5x5-v0"),
        *("MountainCar-v0", "Taxi-v3", "bsuite/Catch", "bsuite/DeepSea"),
        *("bsuite/MemoryChain", "bsuite/SimpleBandit", "probe-needs-memory"),
        *("probe-truncation", "probe-two-steps"),
    ),
    "Box": (
        *("MountainCarContinuous-v0", "Pendulum-v1", "PointRobot-v0", "Reacher-v0"),
        "probe-continuous-action",
    ),
}
_SIMULATED = ("CartPole-v1", "CliffWalking-v1", "FrozenLake-v1", "MountainCar-v0")
_GYMNASIUM = {
    "Discrete": ("Blackjack-v1", "CartPole-v1", "FrozenLake-v1", "Taxi-v3"),
    "Box": ("MountainCarContinuous-v0", "Pendulum-v1"),
}
_EVOLUTION = ("open_es", "cma_es", "simple_ga")
_OFFLINE = ("awac", "behaviour_cloning", "cql", "iql", "td3_bc")
_CONTINUOUS = (
    *("awac", "cql", "crossq", "ddpg", "deterministic_pg", "iql", "redq", "sac"),
    *("soft_pg", "td3", "td3_bc", "tqc"),
)
_ON_POLICY = (
    *("a2c", "awr", "cross_entropy", "impala", "ppo", "reinforce", "v_trace"),
    "vanilla_pg",
)
_MODEL_BASED = ("model_known", "model_learning", "muzero")
_POLICIES = {  # likely ones
    "Discrete": ("boltzmann", "epsilon_greedy", "random", "sampled"),
    "Box": (
        *("deterministic", "gaussian_noise", "ornstein_uhlenbeck", "sampled"),
        *("mode", "state_dependent"),
    ),
}
_WRAPPERS = {
    "Discrete": ("action_repeat", "flatten", "previous", "sticky_actions"),
    "Box": ("action_repeat", "discrete_actions", "previous", "real_actions"),
}
_LIMITS: Mapping[str, Sequence[int]] = {  # sizes that keep programs small
    "capacity": (20, 64, 200),
    "batch_size": (1, 3, 8),
    "length": (2, 5, 16),
    "burn_in": (0, 2),
    "atoms": (2, 5),
    "frames": (1, 2, 4),
    "stack": (2, 4),
    "times": (1, 2, 3),
    "bins": (1, 3),
    "axis": (-1, 0),
    "considered": (2, 4),
    "simulations": (1, 4),
    "width": (4,),
    "drop": (0, 1),
    "sequence": (1, 4, 8),
}
_INTEGERS = (0, 1, 2, 3, 4, 8)
_NUMBERS = (0.0, 1e-4, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0, 2.0)
# Paths, and what would make a run fail or a program large.
_LEFT_OUT = ("prefill", "minari", "path", "lives", "preset", "depth", "cosines")


@functools.cache
def _definitions() -> Mapping[str, Any]:
    return rlcli.schema()["$defs"]


def names(kind: str) -> list[str]:
    """The names of the parts of a kind, as the schema lists them."""
    start = f"{kind}."
    return [key.removeprefix(start) for key in _definitions() if key.startswith(start)]


def draw_combination(draw: random.Random) -> dict[str, Any]:
    """A recipe of random parts, options and settings of training."""
    updater = draw.choice(names("updater"))
    actions = _draw_actions(draw, updater)
    environment = _draw_environment(draw, updater, actions)
    recipe: dict[str, Any] = {
        "environment": environment,
        "updater": _draw_part(draw, "updater", updater),
        "network": _draw_networks(draw, environment, updater),
    }
    replay = _draw_replay(draw, updater)
    if replay:
        recipe["replay"] = replay
    optional = {
        "policy": (0.25, lambda: _draw_likely(draw, "policy", _POLICIES[actions])),
        "tracer": (0.4, lambda: _draw_tracer(draw, updater, replay)),
        "optimizer": (0.5, lambda: _draw_optimizers(draw, updater)),
        "intrinsic_reward": (0.08, lambda: _draw_part(draw, "intrinsic_reward")),
        "normalize": (
            0.3,
            lambda: {k: _flip(draw) for k in ("observation", "reward")},
        ),
    }
    for section, (share, make) in optional.items():
        if draw.random() < share:
            recipe[section] = make()
    recipe["train"] = _draw_train(draw, updater, replay, environment)
    return recipe


def _flip(draw: random.Random) -> bool:
    return draw.random() < 0.5


def _draw_actions(draw: random.Random, updater: str) -> str:
    """The kind of actions; one time in fourteen a kind that does not fit."""
    supports_both = updater in (*_CONTINUOUS, *_ON_POLICY, *_EVOLUTION, *_OFFLINE)
    share = 0.6 if supports_both else 0.07
    return "Box" if draw.random() < share else "Discrete"


def _draw_environment(
    draw: random.Random, updater: str, actions: str
) -> dict[str, Any]:
    kind = 1.0 if updater == "model_known" else draw.random()
    environment: dict[str, Any]
    if kind < 0.55:
        is_host = _flip(draw)
        environment = {
            "name": f"odd_environments:{'Host' if is_host else 'pure'}",
            "observation": draw.choice([*odd_environments.OBSERVATIONS]),
            "action": _draw_action_space(draw, updater, actions),
        }
        if is_host and draw.random() < 0.15:
            environment["careless"] = True
    elif kind < 0.65:
        is_host = True
        environment = {"name": f"gymnasium/{draw.choice(_GYMNASIUM[actions])}"}
    else:
        is_host = False
        # Planning with a game takes half a minute to compile.
        likely = _SIMULATED if updater == "model_known" else _NATIVE[actions]
        environment = {"name": draw.choice(likely)}
    sizes = (2, 4, 8) if updater in _EVOLUTION else (1, 1, 2, 3, 4)
    environment["num_envs"] = draw.choice(sizes)
    # Evaluations end only with whole episodes.
    environment["time_limit"] = draw.choice((1, 5, 20, 20))
    wrappers = []
    if not is_host and draw.random() < 0.3:
        count = draw.choice((1, 1, 2))
        likely = _WRAPPERS[actions]
        wrappers += [_draw_likely(draw, "wrapper", likely) for _ in range(count)]
    if updater == "model_known":
        wrappers.append({"name": "expose_state"})
    if wrappers:
        environment["wrappers"] = wrappers
    return environment


def _draw_action_space(draw: random.Random, updater: str, actions: str) -> str:
    """An action space of the kind, or where several are supported any other."""
    if updater in _ON_POLICY and draw.random() < 0.3:
        return draw.choice([*odd_environments.ACTIONS])
    is_box = actions == "Box"
    return draw.choice(
        [*(odd_environments.BOXES if is_box else odd_environments.DISCRETE)]
    )


def _draw_likely(
    draw: random.Random, kind: str, likely: Sequence[str]
) -> dict[str, Any]:
    """A part that probably fits, or one time in four any."""
    return _draw_part(
        draw, kind, draw.choice(likely if draw.random() < 0.75 else names(kind))
    )


def _draw_tracer(
    draw: random.Random, updater: str, replay: Mapping[str, Any] | None
) -> dict[str, Any]:
    samples_steps = replay and replay["name"] not in ("sequences", "episodes")
    if updater in _ON_POLICY and not replay:
        return _draw_likely(draw, "tracer", ("lambda_return", "n_step", "v_trace"))
    return _draw_likely(
        draw, "tracer", ("n_step",) if samples_steps else ("n_step", "lambda_return")
    )


def _draw_networks(
    draw: random.Random, environment: Mapping[str, Any], updater: str
) -> Any:
    """One network for all functions, one for each, or a shared one."""
    functions = _functions(updater)
    form = draw.random()
    if not functions or form < 0.75:
        return _draw_network(draw, environment, updater)
    if form < 0.9:
        return {name: _draw_network(draw, environment, updater) for name in functions}
    shared = _draw_network(draw, environment, updater)
    return {"shared": shared, **{name: {} for name in functions}}


def _functions(updater: str) -> tuple[str, ...]:
    """The learned functions of common updaters."""
    if updater in _ON_POLICY:
        return ("policy", "value")
    if updater in _CONTINUOUS and updater != "iql":
        return ("policy", "critic")
    return ()


def _draw_network(
    draw: random.Random, environment: Mapping[str, Any], updater: str
) -> dict[str, Any]:
    space = environment.get("observation", environment["name"])
    likely = ["mlp", "mlp", "mlp", "linear", "residual"]
    if space.startswith(("image", "MinAtar")):
        likely = ["mlp", "cnn", "cnn", "residual"]
    elif space in (*odd_environments.DISCRETE, "FrozenLake-v1", "CliffWalking-v1"):
        likely += ["table", "table"]
    name = draw.choice(names("network") if draw.random() < 0.1 else likely)
    options = _draw_part(draw, "network", name)
    small = {
        "mlp": {"layers": draw.choice(([3], [4, 4]))},
        "cnn": {"channels": [2], "kernels": [3], "strides": [1], "layers": [4]},
        "residual": {"width": 4, "blocks": 1, "expansion": 2, "channels": [2]},
    }
    options |= small.get(name, {})
    has_head = updater not in (*_ON_POLICY, *_EVOLUTION, *_MODEL_BASED)
    shares = {"head": 0.3 if has_head else 0.02, "memory": 0.1}
    for kind, share in shares.items():
        if draw.random() < share:
            options[kind] = _draw_part(draw, kind)
            options[kind] |= {"size": 3} if kind == "memory" else {}
    if draw.random() < 0.12:
        options["preprocess"] = [_draw_part(draw, "preprocess")]
    return options


def _draw_replay(draw: random.Random, updater: str) -> dict[str, Any] | None:
    """A replay; None for the default of the updater."""
    is_offline = updater in _OFFLINE
    if draw.random() < (0.2 if is_offline else 0.5 if updater in _ON_POLICY else 0.4):
        return {"name": "dataset", "path": COLLECTED} if is_offline else None
    common = ["uniform", "prioritized", "sequences"]
    choices = names("replay") if draw.random() < 0.5 else common
    part = _draw_part(draw, "replay", draw.choice(choices))
    if part["name"] == "dataset":
        part["path"] = COLLECTED
    return part


def _draw_optimizers(draw: random.Random, updater: str) -> Any:
    functions = _functions(updater)
    if not functions or draw.random() < 0.7:
        return _draw_optimizer(draw)
    chosen = draw.choice((functions[:1], functions, ("default", *functions[1:])))
    return {name: _draw_optimizer(draw) for name in chosen}


def _draw_optimizer(draw: random.Random) -> dict[str, Any]:
    part = _draw_part(draw, "optimizer")
    part["learning_rate"] = draw.choice((1e-3, 1e-2, {"from": 1e-2, "to": 0}))
    return part


def _draw_train(
    draw: random.Random,
    updater: str,
    replay: Mapping[str, Any] | None,
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    steps = draw.choice((100, 160, 300))
    train: dict[str, Any] = {
        "steps": steps,
        "seed": draw.choice((0, 0, 7)),
        "seeds": draw.choice((1, 1, 1, 2, 3)),
        "log": {"every": draw.choice((20, 50))},
        "checkpoint": {"every": draw.choice((20, 45)), "keep": draw.choice((1, 2))},
        "evaluate": {
            "every": draw.choice((50, steps, None)),
            "episodes": 2,
            "render": steps == 100,
        },
    }
    learns_online = updater in (*_ON_POLICY, "pqn")
    has_replay = replay or updater in _CONTINUOUS
    is_host = environment["name"].startswith(("gymnasium/", "odd_environments:Host"))
    optional: Mapping[str, tuple[float, Any]] = {
        "unroll": (0.9 if learns_online else 0.2, draw.choice((1, 4, 10))),
        "updates": (
            0.3 if has_replay else 0.02,
            draw.choice((2, {"per_step": 0.25}, {"per_step": 1})),
        ),
        "start": (0.4 if has_replay else 0.02, draw.choice((0, 20, 50))),
        "warmup": (0.2 if has_replay else 0.02, draw.choice(("random", "policy"))),
        "reset": (0.1, True),
        "precision": (0.05, "bfloat16"),
        "stop": (0.05, {"return": draw.choice((-1_000, 1_000))}),
        "on_nan": (0.1, "stop"),
        "on_error": (0.2 if is_host else 0.0, "restart"),
    }
    for key, (share, value) in optional.items():
        if draw.random() < share:
            train[key] = value
    if updater in _EVOLUTION:
        train["unroll"] = 20
    return train


def _draw_part(
    draw: random.Random, kind: str, name: str | None = None
) -> dict[str, Any]:
    """A part with some of its options."""
    name = draw.choice(names(kind)) if name is None else name
    schema = _definitions()[f"{kind}.{name}"]
    share = draw.choice((0.0, 0.1, 0.4))
    part: dict[str, Any] = {"name": name}
    for key, option in schema.get("properties", {}).items():
        is_needed = key in schema.get("required", ())
        if key in ("name", "head", "memory", "preprocess", *_LEFT_OUT):
            continue
        if is_needed or draw.random() < share:
            part[key] = draw_option(draw, key, option)
    for item in part.get("regularizers", ()):  # options of one kind each
        allowed = {"kl": ("to",), "n_step_entropy": ("gamma", "lambda")}
        kept = ("name", "weight", *allowed.get(item["name"], ()))
        for key in item.keys() - {*kept}:
            del item[key]
    return part


def draw_option(draw: random.Random, key: str, schema: Mapping[str, Any]) -> Any:
    """A small value that the schema of an option accepts."""
    if "$ref" in schema:
        schema = _definitions()[schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        choices = [*schema["anyOf"]]
        spelled = [each.get("$ref", "").rpartition("/")[2] for each in choices]
        if "schedule" in spelled and draw.random() < 0.15:
            ends = [draw_option(draw, key, choices[0]) for _ in range(2)]
            return {"from": ends[0], "to": ends[1]}
        choices = [each for each in choices if "$ref" not in each] or choices
        return draw_option(draw, key, draw.choice(choices))
    if "enum" in schema:
        return draw.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            shares = dict.fromkeys(schema["properties"], 0.4)
            shares |= dict.fromkeys(schema.get("required", ()), 1.0)
            return {
                name: draw_option(draw, name, schema["properties"][name])
                for name, share in shares.items()
                if draw.random() < share
            }
        case "array":
            count = draw.choice((1, 1, 2))
            return [draw_option(draw, key, schema["items"]) for _ in range(count)]
        case "integer":
            return _draw_number(draw, _LIMITS.get(key, _INTEGERS), schema)
        case "number":
            return _draw_number(draw, _NUMBERS, schema)
        case "boolean":
            return _flip(draw)
        case "string":
            return draw.choice(("x", "alpha", "observation", "0"))
    return None


def _draw_number(
    draw: random.Random, choices: Sequence[Any], schema: Mapping[str, Any]
) -> Any:
    low = schema.get("minimum", float("-inf"))
    high = schema.get("maximum", float("inf"))
    above = schema.get("exclusiveMinimum", float("-inf"))
    below = schema.get("exclusiveMaximum", float("inf"))
    fitting = [x for x in choices if low <= x <= high and above < x < below]
    return draw.choice(fitting or [low])
