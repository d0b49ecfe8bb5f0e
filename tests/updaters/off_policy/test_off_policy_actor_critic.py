"""Off-policy actor-critic against loops and analytic derivatives."""

import gymnasium
import jax
import numpy as np
import optax
import pytest
from tiers import quick_first
from wording import mentions

from rlcli import distributions, recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.functions import Pair, separate_network
from rlcli.networks.torsos import linear, table
from rlcli.policies.continuous import gaussian_noise
from rlcli.policies.sampled import sampled
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.off_policy.deterministic_pg import ddpg, deterministic_pg, td3
from rlcli.updaters.off_policy.soft_pg import sac, soft_pg

STATES, ACTIONS, SHAPE, TAU = 5, 3, (4, 3), 0.3
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
KEY = jax.random.key(0)
ONES = np.ones(SHAPE, "f4")
FAR = {"every": 1_000}  # target parameters that stay where they are
RNG = np.random.default_rng(0)
CRITICS, TARGETS = RNG.normal(size=(2, 2, STATES, ACTIONS)).astype("f4")
LOGITS, OLD = RNG.normal(size=(2, STATES, ACTIONS)).astype("f4")
OBSERVATION = gymnasium.spaces.Discrete(STATES)
CHOICES = gymnasium.spaces.Discrete(ACTIONS, start=1)
REAL = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
BOX = gymnasium.spaces.Box(np.array([-1, 0], "f4"), np.array([3, 1], "f4"))
HALF, MIDDLE = np.array([2, 0.5]), np.array([1, 0.5])


def updater(factory, shown, space, torso, **options):
    def networks(name, head, action=None, copies=None):
        inputs = shown if action is None else Pair(shown, action)
        return separate_network(name, torso(), head(), inputs, copies)

    def policies(space, action=None, distribution=None, values=None):
        if distribution is None:
            return gaussian_noise(action, space, scale=0.5)
        return sampled(distribution)

    spaces = Spaces(shown, space)
    offers = {"parts": Parts(spaces, networks, policies, optax.sgd(1.0))}
    return registry.call_factory(factory, offers, options)


def tabular_updater(factory, **options):
    """A tabular updater with Discrete actions."""
    return updater(factory, OBSERVATION, CHOICES, table, **options)


def tables(ours, critics=CRITICS, logits=LOGITS, targets=TARGETS, old=OLD, tau=TAU):
    """A state with these tables."""
    state = jax.jit(ours.init)(KEY)
    numbers = {
        "critic": critics,
        "policy": logits,
        "temperature": np.log(tau, dtype="f4"),
    }
    follow = {"critic": targets, "policy": old}

    def filled(tree, numbers):
        return {
            name: jax.tree.map(
                lambda leaf, name=name: np.reshape(numbers[name], leaf.shape),
                each,
            )
            for name, each in tree.items()
        }

    return state._replace(
        params=filled(state.params, numbers), target=filled(state.target, follow)
    )


def leaf(params, name):
    """The parameters of a function that has a single array."""
    (found,) = jax.tree.leaves(params[name])
    return np.asarray(found)


def rows(seed=1, shape=SHAPE):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.integers(0, STATES, (2, *shape))
    return Transition(
        obs=obs,
        action=1 + rng.integers(0, ACTIONS, shape),
        reward=rng.normal(size=shape).astype("f4"),
        discount=rng.choice([0.0, 0.9], shape).astype("f4"),
        next_obs=next_obs,
        first=np.zeros(shape, bool),
        last=rng.random(shape) < 0.3,
        extras={},
    )


def softmax(logits):
    likely = np.exp(logits - logits.max())
    return likely / likely.sum()


def update_once(ours, state, batch, updates=0, weight=ONES):
    clock = CLOCK._replace(updates=np.int32(updates))
    return jax.jit(ours.update)(state, batch, weight, clock, KEY)


def reference_critics(batch, probabilities, tau, weight=ONES):
    """Both critics after one gradient step, row by row, and the errors."""
    new, errors = CRITICS.astype("f8"), np.zeros((2, *SHAPE))
    for at in np.ndindex(SHAPE):
        state, after = batch.obs[at], batch.next_obs[at]
        worth = 0.0
        for action, p in enumerate(probabilities(after)):
            least = min(TARGETS[0, after, action], TARGETS[1, after, action])
            worth += p * (least - tau * np.log(p))
        goal = batch.reward[at] + batch.discount[at] * worth
        for critic in range(2):
            action = batch.action[at] - 1
            error = goal - CRITICS[critic, state, action]
            errors[critic][at] = error
            new[critic, state, action] += 2 * weight[at] * error / np.sum(weight > 0)
    return new, errors


def reference_policy(batch, q, tau):
    """Logits after one step along Σ π (q − τ log π), by its derivative."""
    new = LOGITS.astype("f8")
    for at in np.ndindex(SHAPE):
        state = batch.obs[at]
        likely = softmax(LOGITS[state])
        worth = q[state] - tau * np.log(likely)
        new[state] += likely * (worth - likely @ worth) / batch.obs.size
    return new


@pytest.mark.parametrize("learned", quick_first([True, False]))
def test_a_soft_update_with_discrete_actions_equals_a_loop(learned):
    options = {"temperature": "learned" if learned else TAU, "target_entropy": 0.5}
    ours, batch = tabular_updater(sac, target=FAR, **options), rows()
    weight = np.random.default_rng(2).choice([0.5, 1.0, 2.0], SHAPE).astype("f4")
    state, report = update_once(ours, tables(ours), batch, weight=weight)
    critics, errors = reference_critics(
        batch, lambda after: softmax(LOGITS[after]), TAU, weight
    )
    found = leaf(state.params, "critic")
    np.testing.assert_allclose(found, critics, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(report.priority, np.abs(errors).mean(axis=0), rtol=1e-5)
    # The policy maximizes the minimum of the updated critics.
    policy = reference_policy(batch, critics.min(axis=0), TAU)
    np.testing.assert_allclose(
        leaf(state.params, "policy"), policy, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(leaf(state.target, "critic"), TARGETS)
    if learned:
        entropies = [
            -np.log(softmax(x)) @ softmax(x) for x in LOGITS[batch.obs.ravel()]
        ]
        expected = np.log(TAU) - TAU * (np.mean(entropies) - 0.5)
        assert leaf(state.params, "temperature") == pytest.approx(expected, rel=1e-5)


def test_a_deterministic_update_with_discrete_actions_equals_a_loop():
    ours, batch = tabular_updater(deterministic_pg, target=FAR, critics=2), rows()
    state, _ = update_once(ours, tables(ours), batch)
    critics, _ = reference_critics(batch, lambda after: softmax(OLD[after]), 0.0)
    np.testing.assert_allclose(
        leaf(state.params, "critic"), critics, rtol=1e-5, atol=1e-5
    )
    policy = reference_policy(batch, critics[0], 0.0)  # the first, whatever the other
    np.testing.assert_allclose(
        leaf(state.params, "policy"), policy, rtol=1e-4, atol=1e-5
    )


def test_regularizers_are_added_to_the_policy_objective():
    """For the policy, `entropy` with weight w equals a fixed temperature w."""
    batch = rows()
    regularizers = [{"name": "entropy", "weight": TAU}]
    ours = tabular_updater(
        deterministic_pg, target=FAR, critics=2, regularizers=regularizers
    )
    state, _ = update_once(ours, tables(ours), batch)
    critics = leaf(state.params, "critic")
    expected = reference_policy(batch, critics[0], TAU)
    np.testing.assert_allclose(
        leaf(state.params, "policy"), expected, rtol=1e-4, atol=1e-5
    )


def test_policy_and_targets_are_updated_once_every_delay_updates():
    ours = tabular_updater(td3, target={"polyak": 0.5}, delay=3)
    state, step = tables(ours), jax.jit(ours.update)
    for updates in range(6):
        before = state
        clock = CLOCK._replace(updates=np.int32(updates))
        state, report = step(state, rows(updates), ONES, clock, KEY)
        assert np.any(leaf(state.params, "critic") != leaf(before.params, "critic"))
        due = updates % 3 == 2
        for name in ("policy", "critic"):
            halfway = (leaf(before.target, name) + leaf(state.params, name)) / 2
            expected = halfway if due else leaf(before.target, name)
            np.testing.assert_allclose(leaf(state.target, name), expected, rtol=1e-6)
        same = leaf(state.params, "policy") == leaf(before.params, "policy")
        assert same.all() != due
        assert report.metrics["policy_loss"] != 0  # reported in every update


def linear_updater(factory, **options):
    """An updater of linear functions with actions in a Box."""
    return updater(factory, REAL, BOX, linear, **options)


def linear_state(ours, **weights):
    """A state with functions `(w, b)`; target critics equal the online critics."""
    state = jax.jit(ours.init)(KEY)
    params = {
        name: {
            module: {
                k: v.astype("f4") for k, v in zip("wb", weights[name], strict=True)
            }
        }
        if name in weights
        else each
        for name, each in state.params.items()
        for module in each
    }
    return state._replace(
        params=params, target={name: params[name] for name in state.target}
    )


def points(seed=2, shape=SHAPE):
    rng = np.random.default_rng(seed)
    batch = rows(seed, shape)
    obs, next_obs = rng.normal(size=(2, *shape, 2)).astype("f4")
    action = (MIDDLE + HALF * rng.uniform(-1, 1, (*shape, 2))).astype("f4")
    return batch._replace(obs=obs, next_obs=next_obs, action=action)


CRITIC = np.array([[0.3], [-0.2], [0.7], [-1.1]]), np.array([0.4])  # of s, then of a
POLICY = np.array([[0.5, -0.4], [0.2, 0.1]]), np.array([0.1, -0.3])


def test_an_update_in_a_box_follows_the_chain_rule():
    ours, batch = linear_updater(ddpg, target=FAR), points()
    state, report = update_once(
        ours, linear_state(ours, critic=CRITIC, policy=POLICY), batch
    )
    assert state.failed == -1

    def actor(obs):
        return MIDDLE + HALF * np.tanh(obs @ POLICY[0] + POLICY[1])

    def q(obs, action, critic=CRITIC):
        both = np.concatenate([obs, action], axis=-1)
        return (both @ critic[0])[..., 0] + critic[1]

    goal = batch.reward + batch.discount * q(batch.next_obs, actor(batch.next_obs))
    error = goal - q(batch.obs, batch.action)
    both = np.concatenate([batch.obs, batch.action], axis=-1)
    critic = (
        CRITIC[0] + 2 * np.mean(error[..., None] * both, axis=(0, 1))[:, None],
        CRITIC[1] + 2 * np.mean(error),
    )
    ((found,), (policy,)) = (
        state.params[name].values() for name in ("critic", "policy")
    )
    np.testing.assert_allclose(found["w"], critic[0], rtol=1e-5)
    np.testing.assert_allclose(found["b"], critic[1], rtol=1e-5)
    u = batch.obs @ POLICY[0] + POLICY[1]
    along = critic[0][2:, 0] * HALF * (1 - np.tanh(u) ** 2)  # ∂q/∂u
    steps = batch.obs[..., :, None] * along[..., None, :]
    np.testing.assert_allclose(
        policy["w"], POLICY[0] + steps.mean(axis=(0, 1)), rtol=1e-5
    )
    np.testing.assert_allclose(
        policy["b"], POLICY[1] + along.mean(axis=(0, 1)), rtol=1e-5
    )
    loss_before = -np.mean(q(batch.obs, actor(batch.obs), critic))
    assert (
        report.metrics["policy_loss"] != loss_before
    )  # evaluated after the critic step
    assert report.metrics["policy_loss"] < loss_before


MANY = (64, 64)


def test_target_actions_are_smoothed_within_the_clip_and_the_box():
    sigma, limit = 0.4, 0.5
    ours = linear_updater(
        td3, target=FAR, critics=1, smoothing=sigma, smoothing_clip=limit
    )
    only = np.array([[0.0], [0.0], [1.0], [0.0]]), np.zeros(1)  # q = the first entry
    still = np.zeros((2, 2)), np.array([np.arctanh(0.85), 0.0])  # μ = 2.7 in [−1, 3]
    zero = np.zeros((*MANY, 2), "f4")
    batch = points(shape=MANY)._replace(
        obs=zero, action=zero, reward=zero[..., 0], discount=zero[..., 0] + 1
    )
    state = linear_state(ours, critic=only, policy=still)
    update = jax.jit(ours.update)
    _, report = update(state, batch, np.ones(MANY, "f4"), CLOCK, KEY)
    # The target action is 2.7 + clip(0.4 ε, −0.5, 0.5), clipped to the Box, up to 3.
    normal = np.random.default_rng(0).normal(size=1_000_000)
    expected = np.clip(2.7 + np.clip(sigma * normal, -limit, limit), -1, 3)
    np.testing.assert_allclose(report.metrics["td_error"], expected.mean(), atol=0.04)
    seen = np.asarray(report.priority)  # of each row
    assert 2.199 <= seen.min() < 2.21
    assert 2.99 < seen.max() <= 3
    single = update(state, batch, np.ones(MANY, "f4"), CLOCK, jax.random.key(1))[1]
    assert single.metrics["td_error"] != report.metrics["td_error"]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [-2.0, 0.5])
def test_soft_values_include_the_entropy_at_the_next_state(scale):
    """At s′, not at s, and of the density in the Box, not in [−1, 1]."""
    ours = linear_updater(soft_pg, target=FAR, temperature=TAU)
    nothing = np.zeros((4, 1)), np.zeros(1)
    # The log-scales are 100 s₁ plus an offset.
    after = np.array([[0, 0, 100, 100], [0, 0, 0, 0.0]]), np.array([0, 0, scale, scale])
    zero = np.zeros((*MANY, 2), "f4")
    batch = points(shape=MANY)._replace(
        obs=zero - 1, next_obs=zero, action=zero, reward=zero[..., 0] - 9
    )
    discount = batch.discount
    state = linear_state(ours, critic=nothing, policy=after)
    _, report = jax.jit(ours.update)(state, batch, np.ones(MANY, "f4"), CLOCK, KEY)
    family = distributions.squashed_normal(BOX)
    entropy = family.entropy(np.array([0, 0, scale, scale], "f4"))
    # The critic is 0 everywhere, so its error is the target, below 0.
    expected = 9 - discount.mean() * TAU * float(entropy)
    np.testing.assert_allclose(report.metrics["td_error"], expected, atol=0.02)


def test_estimates_equal_the_tables():
    ours, batch = (
        tabular_updater(soft_pg, target=FAR, temperature=TAU, critics=2),
        rows(),
    )
    found = jax.jit(ours.estimate)(tables(ours), batch, KEY)
    least, likely = TARGETS.min(axis=0), np.array([softmax(row) for row in LOGITS])
    values = np.sum(likely * (least - TAU * np.log(likely)), axis=-1)
    taken = batch.obs, batch.action - 1
    np.testing.assert_allclose(found.v_tm1, values[batch.obs], rtol=1e-5)
    np.testing.assert_allclose(found.v_t, values[batch.next_obs], rtol=1e-5)
    np.testing.assert_allclose(found.q_tm1, least[taken], rtol=1e-6)
    np.testing.assert_allclose(found.log_prob, np.log(likely[taken]), rtol=1e-5)


def test_estimates_with_a_target_policy_equal_its_tables():
    ours, batch = tabular_updater(deterministic_pg, target=FAR, critics=2), rows()
    found = jax.jit(ours.estimate)(tables(ours), batch, KEY)
    least, likely = TARGETS.min(axis=0), np.array([softmax(row) for row in OLD])
    values = np.sum(likely * least, axis=-1)
    taken = batch.obs, batch.action - 1
    np.testing.assert_allclose(found.v_t, values[batch.next_obs], rtol=1e-5)
    np.testing.assert_allclose(found.q_tm1, least[taken], rtol=1e-6)
    np.testing.assert_allclose(found.log_prob, np.log(likely[taken]), rtol=1e-5)


@pytest.mark.slow
def test_multi_step_targets_are_noisy_with_smoothing():
    sigma, limit = 0.4, 0.5
    options = {"smoothing": sigma, "smoothing_clip": limit}
    ours = linear_updater(td3, target=FAR, critics=1, **options)
    first_entry = np.array([[0.0], [0.0], [1.0], [0.0]]), np.zeros(1)
    constant = np.zeros((2, 2)), np.array([np.arctanh(0.85), 0.0])  # μ = 2.7 in [−1, 3]
    state = linear_state(ours, critic=first_entry, policy=constant)
    v_t = ours.estimate(state, points(shape=MANY), jax.random.key(0)).v_t
    normal = np.random.default_rng(0).normal(size=1_000_000)
    expected = np.clip(2.7 + np.clip(sigma * normal, -limit, limit), -1, 3)
    np.testing.assert_allclose(np.mean(v_t), expected.mean(), atol=0.04)
    np.testing.assert_allclose(np.std(v_t), expected.std(), atol=0.04)


PENDULUM = {"environment": "Pendulum-v1", "train": {"steps": 2_000}}


def build_error(**sections):
    with pytest.raises(RlcliError) as caught:
        build(recipe.load_recipe({**PENDULUM, **sections}))
    return caught.value


def test_unsupported_options_are_refused_with_a_reason():
    memory = {"name": "mlp", "memory": "gru"}
    assert (
        "does not support recurrent"
        in build_error(updater="sac", network=memory).message
    )
    entropy = [{"name": "entropy", "weight": 0.1}]
    updater = {"name": "ddpg", "regularizers": entropy}
    assert mentions(
        build_error(updater=updater).message, "deterministic", "`regularizers`"
    )
    updater = {
        "name": "sac",
        "regularizers": [{**entropy[0], "name": "n_step_entropy"}],
    }
    hint = build_error(updater=updater).hint
    assert hint == "use `entropy`, or `kl` to the prior or to the initial policy"
    wordy = {"name": "sac", "temperature": "auto"}
    assert build_error(updater=wordy).message.endswith('or "learned", got `auto`')
    groups = {"temperatur": "adam"}
    assert build_error(updater="sac", optimizer=groups).hint == (
        "did you mean `temperature`?"
    )
    # A fixed temperature has no optimizer.
    fixed = {"name": "sac", "temperature": 0.1}
    assert build_error(updater=fixed, optimizer={"temperature": "adam"})


@pytest.mark.parametrize(
    ("updater", "more"),
    [
        ("sac", {"policy": "ornstein_uhlenbeck"}),
        ({"name": "sac", "temperature": {"from": 1.0, "to": 0.1}}, {}),
        ("sac", {"policy": "state_dependent", "optimizer": {"temperature": "sgd"}}),
        ("td3", {"network": {"shared": "mlp", "policy": {}, "critic": {}}}),
        ("sac", {"environment": "CartPole-v1"}),
        ("ddpg", {"environment": "CartPole-v1", "policy": "epsilon_greedy"}),
        ("sac", {"tracer": "retrace", "replay": "sequences", "policy": "random"}),
    ],
)
def test_supported_combinations_build_and_trace(updater, more):
    setup = build(recipe.load_recipe({**PENDULUM, "updater": updater, **more}))
    agent = setup.agent
    assert agent.count_updates(2_000) == 1_800


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.MultiBinary(2), "`soft_pg` needs a Discrete action space"),
        (gymnasium.spaces.Text(3), "updater `soft_pg` needs a distribution over"),
    ],
)
def test_soft_pg_refuses_action_spaces_that_it_cannot_sample_with_a_gradient(
    space, message
):
    networks = policies = lambda *_, **__: None
    with pytest.raises(RlcliError, match=message):
        spaces = Spaces(OBSERVATION, space)
        soft_pg(Parts(spaces, networks, policies, optax.sgd(0.1)))
