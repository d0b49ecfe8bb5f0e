"""Planning policies: search with a model before they select an action."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from rlcli.distributions import action_masks, categorical
from rlcli.policies import PlanningModel
from rlcli.registry import register
from rlcli.registry.libraries import import_library
from rlcli.types import (
    Array,
    ArrayTree,
    Count,
    Decision,
    Inspection,
    Key,
    NonNegative,
    Policy,
)
from rlcli.xla.indexing import select_index

_MIN_PROBABILITY = 1e-30  # lower bound of a probability, so that its log is finite


@register("policy")
def gumbel_muzero(
    model: PlanningModel,
    observation: gymnasium.Space,
    gamma: Array | float,
    *,
    simulations: Count = 32,
    considered: Count = 16,
    gumbel_scale: NonNegative = 1.0,
    value_scale: NonNegative = 0.1,
    rescale: bool = True,
    depth: Count | None = None,
) -> Policy:
    """Gumbel MuZero: Monte Carlo tree search with a learned model.

        a = argmax g(a) + logits(a) + σ(q(a)),  g ~ `gumbel_scale` · Gumbel(0)
        π′ = softmax(logits + σ(q))

    q is estimated by `simulations`, each a path into the tree that adds one state. At
    the root, sequential halving distributes them among the `considered` actions with
    the largest g + logits. σ(q) is `value_scale` (50 + largest visit count) q. The q of
    an unvisited action is completed with the mixed value of the visited ones. `rescale`
    first maps the values of each state to [0, 1], which makes the search independent of
    the unit of rewards; without it, larger value differences weigh more. Evaluation
    uses g = 0. `depth` bounds the length of a path. Illegal actions are not searched.

    The decision stores π′ as `action_weights` `[B, A]` and the value of π′,
    Σ π′(a) q(a) over the visited actions, as `root_value` `[B]`. (The mean over all
    simulations would include the worse actions that sequential halving visits.)
    `log_prob` is that of π′. γ is the tracer's discount factor. (Danihelka et al.,
    2022, https://openreview.net/forum?id=bERaNdoegnO, as in mctx; needs the extra
    `muzero`.)
    """
    mctx = import_library("mctx", "muzero")
    start = int(model.actions.start)
    has_mask = action_masks.split_mask(observation)[1] is not None
    q_transform = functools.partial(
        mctx.qtransform_completed_by_mix_value,
        value_scale=value_scale,
        rescale_values=rescale,
    )

    def predict(
        params: ArrayTree, key: Key, action: Int[Array, "B"], hidden: ArrayTree
    ) -> tuple[ArrayTree, ArrayTree]:
        del key  # the model is deterministic
        reward, (hidden, logits, value) = model.predict(params, hidden, start + action)
        discount = jnp.broadcast_to(jnp.float32(gamma), reward.shape)
        output = mctx.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        )
        return output, hidden

    def act_with(scale: Array | float) -> Callable:
        def act(acting, obs, state, first, noise):
            del first  # no state to reset
            hidden, logits, value = model.root(acting, obs)
            output = mctx.gumbel_muzero_policy(
                acting,
                noise,
                mctx.RootFnOutput(prior_logits=logits, value=value, embedding=hidden),
                predict,
                num_simulations=simulations,
                invalid_actions=~action_masks.allowed_actions(obs)
                if has_mask
                else None,
                max_depth=depth,
                max_num_considered_actions=considered,
                gumbel_scale=scale,
                qtransform=q_transform,
            )
            return Decision(start + output.action, _search_extras(output)), state

        return act

    def log_prob(
        logits: Float[Array, "*batch A"], action: Int[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        return select_index(jax.nn.log_softmax(logits), action - start)

    exploit = act_with(0.0)

    def parameters(acting, obs, state, first):
        # Without Gumbel noise, so the key has no effect.
        decision, _ = exploit(acting, obs, state, first, jax.random.key(0))
        weights = decision.extras["action_weights"]
        logits = jnp.log(jnp.maximum(weights, _MIN_PROBABILITY))
        if not has_mask:
            return logits
        return action_masks.mask_outputs(logits, action_masks.allowed_actions(obs))

    return Policy(
        initial=lambda batch: ((), ()),
        draw=lambda key, batch: key,
        explore=act_with(gumbel_scale),
        exploit=exploit,
        log_prob=log_prob,
        inspection=Inspection(
            parameters=parameters, family=categorical(int(model.actions.n), start)
        ),
    )


def _search_extras(output: Any) -> dict[str, Array]:
    """The extras of a decision, from the output of a search of mctx."""
    weights, tree = output.action_weights, output.search_tree.summary()
    visited_weights = jnp.where(tree.visit_counts > 0, weights, 0.0)
    root_value = jnp.sum(visited_weights * tree.qvalues, axis=-1) / jnp.sum(
        visited_weights, axis=-1
    )
    probability = jnp.maximum(select_index(weights, output.action), _MIN_PROBABILITY)
    return {
        "log_prob": jnp.log(probability),
        "action_weights": weights,
        "root_value": root_value,
    }
