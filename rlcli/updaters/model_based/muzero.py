"""MuZero: a model that is learnt for nothing but to be planned with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rlcli.errors import RlcliError
from rlcli.networks.heads import Following, Outlook, following, hidden, outlook
from rlcli.networks.memory import recurrent
from rlcli.networks.predictions import (
    LOSSES,
    Loss,
    Particles,
    Prediction,
    Transform,
    Transforms,
    transform,
)
from rlcli.policies import Ahead, Model
from rlcli.registry import register
from rlcli.types import (
    Array,
    ArrayTree,
    Clock,
    Count,
    Estimates,
    Key,
    Network,
    NonNegative,
    Params,
    Policy,
    Report,
    Transition,
    Updater,
)
from rlcli.updaters import Spaces, discrete
from rlcli.updaters.learner import Learner, Losses, learner


class Goals(NamedTuple):
    """What a model is to say along K steps, `[K + 1, S, B]`; its 0 is where they begin.

    What weighs 0 is not known: what a policy would do once an episode has ended, and
    anything behind a time limit.
    """

    action: Array  # that leads on from there
    policy: Array  # `[K + 1, S, B, A]`: what the search made of it
    value: Array
    reward: Array  # on the way there; at 0 there is none
    policy_weight: Array
    value_weight: Array
    reward_weight: Array


class Functions(NamedTuple):
    """What a model is made of, of arrays with any axes in front."""

    represent: Callable[[Params, ArrayTree], Array]  # params, obs -> hidden
    follow: Callable[[Params, Array, Array], Following]  # params, hidden, action
    look: Callable[[Params, Array], Outlook]  # params, hidden
    init: Callable[[Key], Params]


@register(
    "updater",
    policy="gumbel_muzero",
    tracer={"name": "n_step", "n": 5, "gamma": 0.99},
    replay="uniform",
    extra="muzero",
)
def muzero(
    spaces: Spaces,
    networks: Callable[..., Network],
    policies: Callable[..., Policy],
    optimizer: optax.GradientTransformation,
    *,
    size: Count = 64,
    steps: Count = 5,
    value_weight: NonNegative = 0.25,
    reward_weight: NonNegative = 1.0,
    loss: Loss = "mse",
    transform_: Transforms | None = "signed_hyperbolic",
) -> Updater:
    """Learns a model of rewards, values and policies, and plans with it.

        s⁰ = h(oₜ)        rᵏ, sᵏ = g(sᵏ⁻¹, aₜ₊ₖ₋₁)        pᵏ, vᵏ = f(sᵏ)
        ℓᵏ = H(π′ₜ₊ₖ, pᵏ) + w_v L(zₜ₊ₖ, vᵏ) + w_r L(rₜ₊ₖ, rᵏ)
        ℓ = ℓ⁰ + (1 / K) Σ ℓᵏ,  k = 1 … K

    h is the network `representation`, g `dynamics` and f `prediction`; hidden states
    have `size` numbers from 0 to 1, K is `steps`. The policy searches with the model,
    and what it keeps is learnt: π′, and the value z = R + I ν(s′) of the tracer's row,
    where ν is the value that the search found, or v of `next_obs` where a time limit
    cut the episode. A terminated one goes on without rewards; what would follow upon a
    cut is not learnt. The gradient through each g is halved. Rewards and values are
    learnt by the heads of `dynamics` and `prediction`, `loss` and `transform` as for
    temporal differences; an importance weight is one of all of ℓ. Without noise in the
    networks: the search brings its own. (Schrittwieser et al., 2020,
    https://arxiv.org/abs/1911.08265; Danihelka et al., 2022,
    https://openreview.net/forum?id=bERaNdoegnO; needs the extra `muzero`.)
    """
    actions = discrete(spaces, "muzero")
    scale = transform(transform_)
    model = _functions(networks, actions, size)
    policy = policies(model=_planned(model, scale, actions))
    begin, step = learner(model.init, optimizer)
    losses_of = functools.partial(
        losses, model, LOSSES[loss], scale, (value_weight, reward_weight)
    )

    def update(
        state: Learner, batch: Transition, weight: Array, clock: Clock, key: Key
    ) -> tuple[Learner, Report]:
        del key  # nothing is drawn
        goals = goals_of(batch, steps)
        starts = goals.value.shape[1]
        obs = jax.tree.map(lambda leaf: leaf[:starts], batch.obs)
        asked = functools.partial(losses_of, obs=obs, goals=goals)
        state, priority, metrics = step(state, asked, weight[:starts], clock)
        return state, Report(priority, metrics)

    def estimate(state: Learner, rows: Transition) -> Estimates:
        found = rows.extras["root_value"]
        logits = model.look(state.params, model.represent(state.params, rows.obs))[0]
        there = model.look(state.params, model.represent(state.params, rows.next_obs))
        ahead = following_values(rows, _worth(there.value, scale))
        return Estimates(
            v_tm1=found,
            v_t=ahead,
            log_prob=policy.log_prob(logits, rows.action),
            q_tm1=found,
            # What is known of `next_obs`: tracers move it along with it.
            carry={"value": ahead, "terminated": rows.discount == 0},
        )

    return Updater(
        init=begin,
        acting=lambda state: state.params,
        policy=policy,
        update=update,
        estimate=estimate,
        failed=lambda state: state.failed,
        needs=("action_weights", "root_value"),
        rows=steps + 2,  # so that the search has seen what the last of them bootstraps
    )


def following_values(rows: Transition, own: Array) -> Array:
    """What `next_obs` of steps `[T, B]` is worth by the search, `[T, B]`.

    The next step's root value; `own`, the model's, where no step follows upon it: at
    the end of an episode, and of the steps.
    """
    later = jnp.concatenate([rows.extras["root_value"][1:], own[-1:]])
    return jnp.where(rows.last, own, later)


def goals_of(rows: Transition, steps: int) -> Goals:
    """What is to be said along `steps` steps from each of S rows of `[T, B]`.

    S = T − `steps` − 1: the last row may lack what it bootstraps from.
    """
    starts = rows.reward.shape[0] - steps - 1
    if starts < 1:
        raise RlcliError(
            f"updater `muzero` follows its model for {steps} steps, and there are "
            f"{rows.reward.shape[0]} rows in a row where that takes {steps + 2}",
            "make `train.unroll` longer, or bring a `replay`",
        )

    def along(leaf: Array) -> Array:
        return jnp.stack([leaf[k : k + starts] for k in range(steps + 1)])

    def before(leaf: Array) -> Array:
        """The same of one step earlier; of nothing at first."""
        return jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf[:-1]])

    ahead = rows.extras["next_carry"]
    begins = along(rows.first).at[0].set(False)  # another episode, on the way
    ended = jnp.cumsum(begins, axis=0) > 0
    first_end = begins & ~before(ended)
    terminated = first_end & before(along(ahead["terminated"]))
    known = ~ended | (jnp.cumsum(terminated, axis=0) > 0)
    value = along(rows.reward + rows.discount * ahead["value"])
    reward = before(along(rows.extras["reward"]))
    there = jnp.ones_like(known).at[0].set(False)
    return Goals(
        action=along(rows.action),
        policy=along(rows.extras["action_weights"]),
        value=jnp.where(ended, 0.0, value),
        reward=jnp.where(before(ended), 0.0, reward),
        policy_weight=(~ended).astype(jnp.float32),
        value_weight=known.astype(jnp.float32),
        reward_weight=(before(known) & there).astype(jnp.float32),
    )


def losses(
    model: Functions,
    loss: Callable[[Array], Array],
    scale: Transform,
    weights: tuple[Array | float, Array | float],
    params: Params,
    obs: ArrayTree,
    goals: Goals,
) -> Losses:
    """The loss of each beginning `[S, B]`: of the model followed along its actions."""
    steps = goals.value.shape[0] - 1

    def looked(hidden: Array, goal: Goals) -> tuple[Array, Array, Prediction]:
        there = model.look(params, hidden)
        policy = optax.softmax_cross_entropy(there.logits, goal.policy)
        value = there.value.loss(_surely(goal.value), loss, scale)
        return goal.policy_weight * policy, goal.value_weight * value, there.value

    def followed(hidden: Array, now: tuple[Array, Goals]) -> tuple[Array, tuple]:
        action, goal = now
        found = model.follow(params, _halved(hidden), action)
        reward = found.reward.loss(_surely(goal.reward), loss, scale)
        policy, value, _ = looked(found.hidden, goal)
        return found.hidden, (policy, value, goal.reward_weight * reward)

    hidden = model.represent(params, obs)
    policy, value, root = looked(hidden, jax.tree.map(lambda leaf: leaf[0], goals))
    rest = jax.tree.map(lambda leaf: leaf[1:], goals)
    _, each = jax.lax.scan(followed, hidden, (goals.action[:-1], rest))
    later = [jnp.sum(term, axis=0) / steps for term in each]
    terms = {
        "policy_loss": policy + later[0],
        "value_loss": value + later[1],
        "reward_loss": later[2],
    }
    total = (
        terms["policy_loss"]
        + weights[0] * terms["value_loss"]
        + weights[1] * terms["reward_loss"]
    )
    error = jnp.abs(root.error(_surely(goals.value[0]), scale))
    priority = error[0] if error.shape[0] == 1 else error
    metrics = {**terms, "td_error": error, "value": _worth(root, scale)}
    return Losses({"critic": total}, priority, metrics)


def _functions(
    networks: Callable[..., Network], actions: gymnasium.spaces.Discrete, size: int
) -> Functions:
    """The recipe's networks, as a model."""
    state = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
    represent = networks("representation", functools.partial(hidden, size))
    follow = networks(
        "dynamics",
        functools.partial(following, size),
        observation=state,
        action=actions,
    )
    heads = functools.partial(outlook, int(actions.n))
    look = networks("prediction", heads, observation=state)
    if any(recurrent(each) for each in (represent, follow, look)):
        raise RlcliError(
            "updater `muzero` cannot plan with a network that has a memory",
            "leave out `memory`; `preprocess: [{name: frame_stack}]` remembers as well",
        )

    def of(network: Network) -> Callable[[Params, ArrayTree], ArrayTree]:
        return lambda params, inputs: network.apply(params, None, inputs, (), None)[0]

    def init(key: Key) -> Params:
        return {**represent.init(key), **follow.init(key), **look.init(key)}

    return Functions(
        represent=of(represent),
        follow=lambda params, hidden, action: of(follow)(params, (hidden, action)),
        look=of(look),
        init=init,
    )


def _planned(
    model: Functions, scale: Transform, actions: gymnasium.spaces.Discrete
) -> Model:
    """The model as policies plan with it: in numbers."""

    def seen(params: Params, hidden: Array) -> Ahead:
        logits, value = model.look(params, hidden)
        return Ahead(hidden, logits, _worth(value, scale))

    def root(params: Params, obs: ArrayTree) -> Ahead:
        return seen(params, model.represent(params, obs))

    def ahead(params: Params, hidden: Array, action: Array) -> tuple[Array, Ahead]:
        after, reward = model.follow(params, hidden, action)
        return _worth(reward, scale), seen(params, after)

    return Model(root, ahead, actions)


def _worth(found: Prediction, scale: Transform) -> Array:
    """The number that a prediction stands for, `[...]`: h⁻¹(E[Z]).

    Of one target, h(y) dealt to two atoms, it makes y again.
    """
    return scale.inverse(found.particles().mean())


def _surely(value: Array) -> Particles:
    """A target that is one number, `[...]`."""
    return Particles(value[..., None], jnp.ones_like(value)[..., None])


def _halved(hidden: Array) -> Array:
    """The same, with half of the gradient."""
    return hidden / 2 + jax.lax.stop_gradient(hidden) / 2
