"""Setup: builds compatible parts, and refuses incompatible ones by name."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wording import mentions

from rlcli import recipe
from rlcli.assembly import build_environment
from rlcli.errors import RlcliError
from rlcli.replays.uniform import uniform
from rlcli.training.experiment.program import Program
from rlcli.types import START, Clock, Count, Inputs, Transition
from tests.assembly.building import CARTPOLE, build_error, built, setup_of

BOX = "environment: probe-continuous-action\n"
DQN = CARTPOLE + "updater: q_learning\nreplay: uniform\n"


@pytest.mark.parametrize("updater", ["q_learning", "double_q_learning"])
def test_q_learning_in_a_box_names_both_and_what_fits(updater, tmp_path):
    error = build_error(f"{BOX}updater: {updater}\nreplay: uniform\n", tmp_path)
    assert mentions(
        error.message,
        f"{tmp_path}/mine.yaml:2: ",
        f"`{updater}`",
        "`probe-continuous-action`",
        "Box(1,) in [-1, 1]",
    )
    assert "`ppo`" in error.hint


@pytest.mark.parametrize(
    ("policy", "updater", "acts_on", "fitting"),
    [
        (
            *("sampled", "q_learning", "distribution"),
            "`boltzmann`, `epsilon_greedy`, `random`",
        ),
        ("epsilon_greedy", "ppo", "values", "`mode`, `random`, `sampled`"),
    ],
)
def test_a_policy_that_the_updater_does_not_support_is_refused_with_those_it_does(
    policy, updater, acts_on, fitting, tmp_path
):
    error = build_error(f"{CARTPOLE}updater: {updater}\npolicy: {policy}\n", tmp_path)
    assert mentions(
        error.message,
        f"{tmp_path}/mine.yaml:3: ",
        f"`{policy}`",
        f"`{acts_on}`",
        f"`{updater}`",
        "Discrete(2)",
    )
    assert error.hint == f"choose the policy from {fitting}"


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        (
            "updater: ppo\nnetwork: {policy: mlp, value: mlp, valu: mlp}",
            3,
            "updater `ppo` has no function `valu`",
            "did you mean `value`?",
        ),
        (
            "updater: ppo\nnetwork: {policy: mlp}",
            3,
            "updater `ppo` needs a network `value`",
            "`network:` has `policy`",
        ),
        (
            "updater: ppo\noptimizer: {critic: adam}",
            3,
            "updater `ppo` has no function `critic`",
            "choose from `policy`, `value`",
        ),
        (
            "updater: ppo\nnetwork: {name: mlp, head: {dueling: true}}",
            3,
            "the head of network `policy` has no option `dueling`",
            "there are none",
        ),
        (
            "updater: q_learning\nnetwork: {name: mlp, head: {duelling: true}}",
            3,
            "head `scalar` has no option `duelling`",
            "did you mean `dueling`?",
        ),
        (
            "updater: {name: ppo, minibatches: 3}",
            2,
            "updater `ppo` cannot split 128 sequences into 3 equal minibatches",
            "make `updater.minibatches` a divisor of `train.unroll` × "
            "`environment.num_envs` / `updater.sequence`",
        ),
        (
            "updater: {name: ppo, sequence: 7}",
            2,
            "updater `ppo` cannot split an unroll of 128 steps into sequences of 7",
            "make `train.unroll` a multiple of `updater.sequence`",
        ),
        (
            "updater: {name: q_learning, target: {every: 3, polyak: 0.1}}",
            2,
            "`target` has both `every` and `polyak`",
            "set either `every` or `polyak`",
        ),
        (
            "updater: q_learning\ntrain: {devices: 99, seeds: 99}",
            3,
            "`devices: 99`, but JAX finds only 2",
            "lower `devices`, or use `devices: auto`",
        ),
        (
            "updater: q_learning\ntrain: {devices: 2, seeds: 1}",
            3,
            "`devices: 2`, but `seeds` is 1",
            "lower `devices`, or use `devices: auto`",
        ),
        (
            "updater: q_learning\ntrain: {threads: 2, seeds: 3}",
            3,
            "`threads: 2` with 3 seeds could deadlock",
            "remove `threads`: several seeds use one thread",
        ),
    ],
)
def test_a_misfit_is_refused_with_its_line_and_a_hint(
    text, line, message, hint, tmp_path
):
    error = build_error(f"{CARTPOLE}{text}\n", tmp_path)
    assert error.message == f"{tmp_path}/mine.yaml:{line}: {message}"
    assert error.hint == hint


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        (
            "replay: {name: uniform, capacity: 3}\ntracer: {name: n_step, n: 5}",
            "capacity of 3 holds 3 steps of each environment, but the tracer needs 5",
            "raise `replay.capacity` to at least 5",
        ),
        (
            "replay: uniform\ntracer: {name: n_step, n: 90}\ntrain: {steps: 60}",
            "tracer `n_step` needs 90 consecutive steps, but the run has 60",
            "raise `train.steps` to at least 90",
        ),
        (
            "tracer: {name: n_step, n: 500}\ntrain: {unroll: 16, steps: 400}",
            "tracer `n_step` needs 500 consecutive steps, but the run has 400",
            "raise `train.steps` to at least 512",
        ),
        (
            "replay: uniform\ntrain: {steps: 30, start: 0, updates: {per_step: 0.01}}",
            "the run ends after 30 steps, before its first update",
            "raise `train.steps`, or change `train.start` and `train.updates`",
        ),
    ],
)
def test_a_recipe_that_could_never_learn_is_refused(text, says, hint, tmp_path):
    error = build_error(f"{CARTPOLE}updater: q_learning\n{text}\n", tmp_path)
    assert says in error.message
    assert error.hint == hint


@pytest.mark.parametrize(
    ("replay", "samples"),
    [
        ("replay: uniform\n", "replay `uniform` samples"),
        ("", "without a replay there are"),
    ],
)
def test_a_tracer_of_whole_episodes_needs_a_replay_of_them(replay, samples, tmp_path):
    text = f"{CARTPOLE}updater: q_learning\ntracer: monte_carlo\n"
    error = build_error(text + replay, tmp_path)
    assert mentions(error.message, "`monte_carlo`", "whole episodes", samples)
    assert mentions(error.hint, "`replay: episodes`")
    setup_of(f"{text}replay: episodes\n", tmp_path)


def test_no_update_happens_before_a_replay_can_be_sampled(tmp_path):
    text = (
        "replay: {name: sequences, length: 12, burn_in: 4, overlap: 6}\n"
        "network: {memory: gru}\n"
        "tracer: {name: n_step, n: 3}\ntrain: {start: 0, unroll: 5}\n"
    )
    _, setup = built(f"{CARTPOLE}updater: q_learning\n{text}", tmp_path)
    agent = setup.agent
    # 4 + 12 + 2 steps are a sequence, and five more until one begins for sure.
    assert [agent.count_updates(count) for count in (4, 5, 6)] == [0, 1, 2]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            "replay: {name: uniform, replacement: false}", marks=pytest.mark.slow
        ),
        pytest.param(
            "replay: {name: prioritized, beta: {from: 0.4, to: 1.0}, "
            "alpha: {from: 1, to: 0.5}}",
            marks=pytest.mark.slow,
        ),
        "replay: {name: prioritized, by: rank, frames: {stack: 2}}\n"
        "network: {name: mlp, preprocess: [{name: frame_stack, frames: 2}]}",
        "replay: {name: frames, stack: 3}\n"
        "network: {name: mlp, preprocess: [{name: diff_transform}]}",
        pytest.param(
            "replay: {name: sequences, length: 1, overlap: 0, priorities: {eta: 0.5}}",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "replay: {name: episodes, length: 100}\ntracer: monte_carlo",
            marks=pytest.mark.slow,
        ),
        pytest.param("replay: {name: episodes, length: 100}", marks=pytest.mark.slow),
    ],
)
def test_every_replay_is_built_and_traced_from_a_recipe(lines, tmp_path):
    read, setup = built(f"{CARTPOLE}updater: q_learning\n{lines}\n", tmp_path)
    assert recipe.load_recipe(recipe.resolve(read)) == read
    assert Program(read, setup).check()


@pytest.mark.slow  # quick: the recipes `retrace_cartpole` and `v_trace_cartpole`
@pytest.mark.parametrize(
    ("tracer", "replay"),
    [
        ("v_trace", "null"),
        ("{name: retrace, lambda: 0.9}", "{name: sequences, length: 6}"),
        ("{name: retrace, lambda: 0.9}", "null"),
        ("v_trace", "{name: sequences, length: 6}"),
    ],
)
def test_off_policy_tracers_are_built_and_traced_from_a_recipe(
    tracer, replay, tmp_path
):
    text = f"updater: q_learning\ntracer: {tracer}\nreplay: {replay}\n"
    text += "train: {unroll: 8}\n"
    assert Program(*built(f"{CARTPOLE}{text}", tmp_path)).check()


def test_an_environment_that_nobody_registered_is_refused(tmp_path):
    error = build_error("environment: gymnasium/Nonsense-v9\nupdater: ppo\n", tmp_path)
    assert mentions(error.message, ":1: there is no", "`gymnasium/Nonsense-v9`")


def test_shapes_are_known_without_running_anything(tmp_path):
    setup = setup_of(DQN, tmp_path)
    shapes = Program(recipe.load_recipe(tmp_path / "mine.yaml"), setup).check()
    assert shapes.pending.obs.shape == (1, 1, 4)  # seeds, environments, observation
    assert all(
        isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(shapes)
    )


def _unroll():
    flag, number = jnp.zeros((1, 1), bool), jnp.zeros((1, 1))
    obs, action = jnp.zeros((1, 1, 4)), jnp.zeros((1, 1), jnp.int32)
    return Transition(obs, action, number, number, obs, flag, flag, {})


def too_wide(obs):
    """A forward pass with three outputs, where CartPole has two actions."""
    return hk.Linear(3)(obs)


def two_wide(obs, *, factor: float = 1.0):
    """A forward pass that fits CartPole."""
    return factor * hk.Linear(2)(obs)


def test_a_forward_pass_of_the_users_own_is_a_network(tmp_path):
    name = f"{__name__}:two_wide"
    setup = setup_of(f"{DQN}network: {{name: '{name}', factor: 0.0}}\n", tmp_path)
    agent = setup.agent
    params = jax.eval_shape(
        lambda: agent.acting(agent.init(jax.random.key(0), _unroll()))
    )
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    assert sorted(shapes) == [(2,), (4, 2)]


def used_up(obs, *, layers: list[int]):
    """A forward pass that changes its option in place."""
    while layers:
        obs = hk.Linear(layers.pop(0))(obs)
    return obs


def test_a_forward_pass_may_change_its_options_in_place(tmp_path):
    text = f"{DQN}network: {{name: '{__name__}:used_up', layers: [3, 2]}}\n"
    agent = setup_of(text, tmp_path).agent
    for _ in range(2):  # each trace calls the function
        params = jax.eval_shape(
            lambda: agent.acting(agent.init(jax.random.key(0), _unroll()))
        )
        shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
        assert sorted(shapes) == [(2,), (3,), (3, 2), (4, 3)]


@pytest.mark.slow
def test_a_forward_pass_of_the_wrong_shape_is_refused_with_the_right_one(tmp_path):
    name = f"{__name__}:too_wide"
    error = build_error(f"{DQN}network: '{name}'\n", tmp_path)
    assert mentions(error.message, "`q`", "(2, 3)", "(2, 2)")


def small_uniform(window, unroll, num_envs, factor=2, *, batch_size: Count = 4):
    """A replay with a positional parameter that rlcli does not know."""
    return uniform(
        window, unroll, num_envs, capacity=100 * factor, batch_size=batch_size
    )


def test_a_positional_parameter_of_the_users_own_replay_keeps_its_default(tmp_path):
    replay = f"replay: {{name: '{__name__}:small_uniform'}}\n"
    setup_of(f"{CARTPOLE}updater: q_learning\n{replay}", tmp_path)


def test_a_schedule_is_evaluated_at_the_clock_inside_the_program(tmp_path):
    text = (
        "environment: {name: CartPole-v1, failure_reward: {from: 0, to: -10}}\n"
        "updater: q_learning\ntrain: {steps: 1_000}\n"
    )
    setup = setup_of(text, tmp_path)

    @jax.jit
    def reward(steps):
        env, _ = setup.at(Inputs(Clock.zero()._replace(steps=steps)))
        state, _ = env.reset(jax.random.key(0))
        fallen = state._replace(core=type(state.core)(jnp.full((1, 4), 9.0)))
        noise = env.draw(jax.random.key(1))
        return env.step(fallen, jnp.zeros(1, jnp.int32), noise)[1].reward[0]

    found = [float(reward(jnp.float32(steps))) for steps in (0, 500, 1_000, 2_000)]
    assert found == [0, -5, -10, -10]


@pytest.mark.slow
def test_each_environment_has_its_own_value_by_turns():
    data = {
        "environment": {
            "name": "CartPole-v1",
            "num_envs": 5,
            "each": {"failure_reward": [1, 2]},
        },
        "updater": "q_learning",
    }
    env = setup_of(data).environment
    state, _ = env.reset(jax.random.key(0))
    fallen = state._replace(core=type(state.core)(jnp.full((5, 4), 9.0)))
    noise = env.draw(jax.random.key(1))
    answer = env.step(fallen, jnp.zeros(5, jnp.int32), noise)[1]
    assert answer.reward.tolist() == [1, 2, 1, 2, 1]


def test_seeds_are_those_of_the_recipe_unless_others_are_given():
    data = {
        "environment": "CartPole-v1",
        "updater": "q_learning",
        "train": {"seed": 7, "seeds": 3},
    }
    assert setup_of(data).seeds == (7, 8, 9)
    assert setup_of(data, seeds=[4]).seeds == (4,)


@pytest.mark.parametrize(
    ("wanted", "seeds", "devices"),
    [("auto", 4, 2), ("auto", 3, 2), ("auto", 1, 1), (1, 4, 1), (2, 3, 2)],
)
def test_seeds_are_divided_among_the_devices(wanted, seeds, devices):
    data = {"environment": "CartPole-v1", "updater": "q_learning"}
    found = setup_of({**data, "train": {"devices": wanted}}, seeds=range(seeds))
    assert found.devices == devices


@pytest.mark.parametrize("devices", ["auto", 2])
def test_an_environment_on_the_host_uses_one_device(devices):
    data = {"environment": "gymnasium/CartPole-v1", "updater": "q_learning"}
    setup = setup_of({**data, "train": {"devices": devices}}, seeds=range(4))
    assert setup.devices == 1


def test_an_environment_alone_may_be_more_than_the_replay_would_hold():
    data = {
        "environment": {"name": "CartPole-v1", "num_envs": 100},
        "replay": {"name": "uniform", "capacity": 64},
        "updater": "q_learning",
    }
    with pytest.raises(RlcliError, match="replay `uniform`"):
        setup_of(data)
    env = build_environment(recipe.load_recipe(data), 1)
    _, obs = jax.eval_shape(env.reset, jax.random.key(0))
    assert obs.shape == (100, 4)


@pytest.mark.slow
def test_warmup_plays_at_random_until_the_start_and_the_policy_from_then_on():
    data = {
        "environment": {"name": "CartPole-v1", "num_envs": 64},
        "network": {"name": "mlp", "layers": [4]},
        "policy": {"name": "epsilon_greedy", "epsilon": 0.0},
        "replay": "uniform",
        "updater": "q_learning",
        "train": {"start": 640, "warmup": "random"},
    }
    setup = setup_of(data)

    def actions(steps: int):
        _, agent = setup.at(Inputs(Clock.zero()._replace(steps=jnp.float32(steps))))
        state = agent.init(jax.random.key(3), _unroll())
        obs = jnp.ones((64, 4))
        noise = agent.policy.draw(jax.random.key(1), 64)
        memory = agent.policy.initial(64)
        first = jnp.ones(64, bool)
        decision, _ = agent.policy.explore(
            agent.acting(state), obs, memory, first, noise
        )
        return np.asarray(decision.action).tolist()

    assert set(actions(0)) == set(actions(639)) == {0, 1}
    assert len(set(actions(640))) == 1  # greedy, and all see the same


def test_a_critic_may_read_members_that_the_policy_does_not(tmp_path):
    _, setup = built(
        "environment: BitFlip-v0\nupdater: ppo\nnetwork:\n  policy: {name: mlp, "
        "preprocess: [{name: member, of: [observation, desired_goal]}]}\n"
        "  value: mlp\n",
        tmp_path,
    )
    # 15 bits in each of three members; the policy does not read `achieved_goal`.
    first = {
        name: jax.tree.leaves(jax.eval_shape(each.init, jax.random.key(0)))[1].shape[0]
        for name, each in setup.networks.items()
    }
    assert first == {"policy": 30, "value": 45}


def test_the_networks_of_a_setup_are_not_those_of_a_program_that_was_traced(tmp_path):
    _, setup = built(
        "environment: CartPole-v1\nupdater: ppo\nfreeze: {value: 500}\n", tmp_path
    )
    before = dict(setup.networks)

    def use(steps):
        setup.at(START._replace(clock=START.clock._replace(steps=steps)))
        return steps

    jax.eval_shape(use, 0)
    assert all(setup.networks[name] is each for name, each in before.items())
