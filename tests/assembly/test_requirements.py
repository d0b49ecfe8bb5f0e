"""Requirements: what parts declare, what others read, and what does not fit."""

import numpy as np
import pytest
from wording import mentions

from rlcli.policies.discrete import epsilon_greedy
from rlcli.tracers.multi_step import n_step
from rlcli.training.experiment.program import Program
from rlcli.types import START, Clock, Inputs, Tracer
from rlcli.updaters.td.q_learning import q_learning
from tests.assembly.building import CARTPOLE, build_error, built, setup_of


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("tracer: {name: n_step, n: 3}", "`n_step` span 3 steps"),
        ("tracer: monte_carlo\nreplay: episodes", "`monte_carlo` span whole episodes"),
    ],
)
def test_n_step_entropy_requires_rows_of_single_steps(text, spans, tmp_path):
    regular = "regularizers: [{name: n_step_entropy, weight: 0.1}]"
    updater = f"updater: {{name: a2c, {regular}}}\n"
    error = build_error(f"{CARTPOLE}{updater}{text}\n", tmp_path)
    assert error.message.startswith(f"{tmp_path}/mine.yaml:2: ")
    assert mentions(error.message, "single steps", spans)
    assert mentions(error.hint, "`tracer: lambda_return`")
    for fitting in ("tracer: {name: n_step, n: 1}", "tracer: lambda_return"):
        built(f"{CARTPOLE}{updater}{fitting}\n", tmp_path)
    built(f"{CARTPOLE}updater: a2c\n{text}\n", tmp_path)


def test_off_policy_advantages_are_not_normalized_with_a_replay(tmp_path):
    replay = "replay: {name: sequences, length: 20}\n"
    centred = "updater: {name: v_trace, normalize_advantage: true}\n"
    error = build_error(f"{CARTPOLE}{centred}{replay}", tmp_path)
    assert mentions(
        error.message,
        f"{tmp_path}/mine.yaml:2: ",
        "`normalize_advantage`",
        "`v_trace`",
        "replay",
    )
    assert mentions(error.hint, "`normalize_advantage`", "`replay`")
    built(f"{CARTPOLE}{centred}", tmp_path)
    built(f"{CARTPOLE}updater: v_trace\n{replay}", tmp_path)


@pytest.mark.parametrize("updater", ["ppo", "a2c", "reinforce"])
@pytest.mark.parametrize("replay", ["uniform", "prioritized", "sequences"])
def test_an_on_policy_updater_does_not_learn_from_a_replay(updater, replay, tmp_path):
    text = f"{CARTPOLE}updater: {updater}\n"
    error = build_error(f"{text}replay: {replay}\n", tmp_path)
    assert mentions(
        error.message,
        f"{tmp_path}/mine.yaml:3: ",
        f"`{updater}`",
        f"`{replay}`",
        "`lambda_return`",
    )
    assert mentions(error.hint, "`replay: null`")


@pytest.mark.parametrize(
    "text",
    [
        "updater: {name: ppo, sequence: 10, minibatches: 1}\nreplay: episodes\n",
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in (
                "updater: v_trace\nreplay: episodes\n",
                "updater: v_trace\nreplay: uniform\n",
                "updater: a2c\ntracer: v_trace\nreplay: sequences\n",
                "updater: cross_entropy\ntracer: n_step\nreplay: uniform\n",
                "updater: pqn\nreplay: sequences\n",
            )
        ),
    ],
)
def test_replays_that_suit_an_updater_trace(text, tmp_path):
    """Returning each step once, corrected by the tracer, or for any policy's steps."""
    assert Program(*built(f"{CARTPOLE}{text}", tmp_path)).check()


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
@pytest.mark.parametrize(
    ("updater", "tracer"),
    [
        ("dqn", "lambda_return"),
        ("dqn", "retrace"),
        ("cross_entropy", "lambda_return"),
        ("a2c", "v_trace"),
    ],
)
def test_returns_over_several_steps_need_consecutive_rows(
    updater, tracer, replay, tmp_path
):
    text = f"{CARTPOLE}updater: {updater}\ntracer: {tracer}\n"
    error = build_error(f"{text}replay: {replay}\n", tmp_path)
    assert mentions(
        error.message,
        f"{tmp_path}/mine.yaml:3: ",
        f"`{tracer}`",
        "at least 2",
        f"`{replay}`",
        "only 1",
    )
    assert mentions(
        error.hint, "`replay: {name: sequences, length: 20}`", "`tracer: n_step`"
    )
    built(f"{text}replay: {{name: sequences, length: 2}}\n", tmp_path)


def test_returns_over_several_steps_need_an_unroll_of_several(tmp_path):
    text = f"{CARTPOLE}updater: q_learning\ntracer: lambda_return\ntrain: {{unroll: "
    error = build_error(f"{text}1}}\n", tmp_path)
    assert error.message.endswith("but unrolls have only 1")
    assert mentions(error.hint, "`train.unroll`", "at least 2", "`tracer: n_step`")
    built(f"{text}2}}\n", tmp_path)


def test_v_trace_samples_windows_of_its_sequence_from_any_replay(tmp_path):
    replay = "replay: {name: uniform, batch_size: 4}\n"
    text = f"{CARTPOLE}updater: {{name: v_trace, sequence: "
    error = build_error(f"{text}1}}\n{replay}", tmp_path)
    assert mentions(error.message, "`v_trace`", "at least 2")
    _, setup = built(f"{text}3}}\n{replay}", tmp_path)
    assert setup.agent.traits.requires == ("log_prob",)


def test_an_updater_of_whole_unrolls_supports_no_replay(tmp_path):
    pytest.importorskip("evosax")
    environment = "environment: {name: CartPole-v1, num_envs: 32}\n"
    text = f"{environment}updater: open_es\nreplay: {{name: uniform, batch_size: 32}}\n"
    error = build_error(text, tmp_path)
    assert mentions(error.message, "whole unrolls", "no replay")
    assert error.hint == "`replay: null` removes it"


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_a_recurrent_network_does_not_learn_from_single_steps(replay, tmp_path):
    text = f"{CARTPOLE}updater: dqn\nnetwork:\n  memory: gru\n"
    error = build_error(f"{text}replay: {replay}\ntracer: {{n: 5}}\n", tmp_path)
    assert mentions(
        error.message, f"{tmp_path}/mine.yaml:4: ", "recurrent", f"`{replay}`"
    )
    assert "sequences" in error.hint
    built(f"{text}replay: {{name: sequences, length: 5}}\n", tmp_path)
    built(f"{text}replay: null\n", tmp_path)


def test_burn_in_requires_a_recurrent_network(tmp_path):
    text = f"{CARTPOLE}updater: dqn\nreplay: {{name: sequences, burn_in: 4}}\n"
    error = build_error(text, tmp_path)
    assert mentions(
        error.message,
        f"{tmp_path}/mine.yaml:3: ",
        "`burn_in: 4`",
        "`sequences`",
        "`dqn`",
    )
    assert mentions(error.hint, "`memory`")
    built(f"{text}network:\n  memory: gru\n", tmp_path)
    built(text.replace("burn_in: 4", "burn_in: 0"), tmp_path)


@pytest.mark.parametrize("replay", ["uniform", "prioritized", "episodes"])
def test_a_replay_holds_at_least_one_sample(replay, tmp_path):
    text = f"{CARTPOLE}updater: dqn\n"
    length = "length: 5, " if replay == "episodes" else ""
    options = f"name: {replay}, {length}capacity"
    error = build_error(f"{text}replay: {{{options}: 10, batch_size: 64}}\n", tmp_path)
    assert mentions(
        error.message, f"{tmp_path}/mine.yaml:3: ", f"`{replay}`", "10 steps", "64"
    )
    assert mentions(error.hint, "capacity", "at least 64", "batch size")
    built(f"{text}replay: {{{options}: 64, batch_size: 64}}\n", tmp_path)


def reporting(parts):
    """Q-learning that claims to report gradient norms."""
    updater = q_learning(parts)
    return updater._replace(traits=updater.traits._replace(priority="gradient_norm"))


@pytest.mark.slow
def test_gradient_norm_priorities_require_an_updater_that_reports_them(tmp_path):
    text = (
        f"{CARTPOLE}replay: {{name: prioritized, by: gradient_norm}}\n"
        "policy: epsilon_greedy\n"
    )
    error = build_error(f"{text}updater: q_learning\n", tmp_path)
    assert mentions(error.message, "`prioritized`", "`gradient_norm`", "`q_learning`")
    assert mentions(error.hint, "`td_error`", "`priority`")
    with_option = "updater: {name: q_learning, priority: gradient_norm}\n"
    assert Program(*built(f"{text}{with_option}", tmp_path)).check()
    own = f"'{__name__}:reporting'"
    assert Program(*built(f"{text}updater: {own}\n", tmp_path)).check()


def discounting(*, rate: float = 0.5):
    """A tracer whose discount factor is not an option called `gamma`."""
    return n_step(n=3, gamma=rate)


def without_gamma():
    """A tracer that does not say how it discounts."""
    return Tracer(1, lambda steps, estimates: steps)


def greedy(values, space, gamma):
    """A policy that receives the discount factor of the tracer."""
    SEEN["policy"] = gamma
    return epsilon_greedy(values, space, epsilon=0.0)


def witness(parts, tracer):
    """An updater that receives the tracer."""
    SEEN["updater"] = tracer.gamma, tracer.window
    return q_learning(parts)


SEEN = {}


def test_other_parts_receive_the_discount_factor_of_the_tracer(tmp_path):
    rate = "{from: 0.25, to: 0.75}"
    text = (
        f"{CARTPOLE}updater: '{__name__}:witness'\npolicy: '{__name__}:greedy'\n"
        f"tracer: {{name: '{__name__}:discounting', rate: {rate}}}\n"
        "replay: uniform\ntrain: {steps: 1_000}\n"
    )
    setup = setup_of(text, tmp_path)
    assert SEEN == {"updater": (0.25, 3), "policy": 0.25}
    setup.at(Inputs(Clock.zero()._replace(steps=np.float32(1_000))))
    assert SEEN == {"updater": (0.75, 3), "policy": 0.75}


def test_a_tracer_without_a_discount_factor_is_refused(tmp_path):
    tracer = f"{__name__}:without_gamma"
    error = build_error(f"{CARTPOLE}updater: ppo\ntracer: '{tracer}'\n", tmp_path)
    assert f"tracer `{tracer}` cannot be built" in error.message
    assert "'gamma'" in error.message


def test_parts_are_checked_once_and_not_at_every_time(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "rlcli.assembly.requirements.check_parts", lambda *parts: calls.append(parts)
    )
    setup = setup_of({"environment": "CartPole-v1", "updater": "ppo"})
    setup.at(START)
    assert len(calls) == 1


def test_the_capacity_of_episodes_follows_the_time_limit(tmp_path):
    recipe = """
environment: {{name: CartPole-v1, num_envs: 2, time_limit: {}}}
network: {{name: mlp, layers: [4]}}
updater: reinforce
tracer: monte_carlo
replay: {{name: episodes, capacity: 100}}
train: {{steps: 100}}
"""
    built(recipe.format(40), tmp_path)
    error = build_error(recipe.format(60), tmp_path)
    assert "capacity of 100 holds 50" in error.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("replay: frames", "are no stacks"),
        (
            "replay: {name: frames, stack: 2}\n"
            "network: {name: mlp, preprocess: [{name: frame_stack, frames: 4}]}",
            "are stacks of 4 along axis -1",
        ),
        (
            "replay: {name: prioritized, frames: {stack: 4, padding: zero}}\n"
            "network: {name: mlp, preprocess: [{name: frame_stack, frames: 4}]}",
            "the first frame repeated at the start",
        ),
        (
            "environment: {name: CartPole-v1, wrappers: [frame_stack, "
            "{name: entries, of: [0, 1, 2, 3]}]}\nreplay: frames",
            "are no stacks",
        ),
    ],
)
def test_a_replay_of_frames_needs_the_same_stack_of_frames(text, says, tmp_path):
    text = text if text.startswith("environment") else f"{CARTPOLE}{text}"
    error = build_error(f"{text}\nupdater: q_learning\n", tmp_path)
    assert mentions(error.message, "frames", "stacks")
    assert error.message.endswith(says) or says in error.message


STACK = "network: {name: mlp, preprocess: [frame_stack]}"


@pytest.mark.parametrize(
    "text",
    [
        f"{CARTPOLE}replay: frames\n{STACK}",
        f"{CARTPOLE}replay: {{name: frames, axis: 0}}\n{STACK}",
        "environment: {name: CartPole-v1, wrappers: [frame_stack]}\nreplay: frames",
        "environment: {name: gymnasium/CartPole-v1}\nreplay: frames",
    ],
)
def test_stacks_of_the_environment_fit_a_replay_of_frames(text, tmp_path):
    built(f"{text}\nupdater: q_learning\n", tmp_path)
