"""Policies that plan: they look ahead with a model before they act."""

from __future__ import annotations

import functools
from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp

from rlcli import action_masks
from rlcli.libraries import import_library
from rlcli.policies import PlanningModel
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Count, Decision, Key, NonNegative, Policy
from rlcli.xla.indexing import select_index

_MIN_PROBABILITY = 1e-30  # of a probability whose logarithm is stored


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
    """Searches a tree of what a learnt model foretells, and acts upon what it finds.

        a = argmax g(a) + logits(a) + σ(q(a)),  g ~ `gumbel_scale` · Gumbel(0)
        π′ = softmax(logits + σ(q))

    where q comes of so many `simulations`, each a path into the tree that adds one
    state; at its root they are shared out by sequential halving among the `considered`
    actions whose g + logits are greatest. σ(q) is `value_scale` (50 + most visits) q;
    an action that nobody tried counts as what the others make likely. With `rescale`
    the values of a state's actions are brought to [0, 1] before that, so that the best
    is as much above the worst everywhere, in whatever unit rewards are; without, it
    counts how much is at stake. Evaluation draws no g. No path is longer than `depth`,
    if it is given. What a mask forbids is not looked at.

    The decision keeps π′ as `action_weights` `[B, A]`, and as `root_value` `[B]` what
    π′ is worth, Σ π′(a) q(a) over the actions that were tried: a mean over simulations
    counts as many of the worse actions as sequential halving tries. `log_prob` is that
    of π′, and γ the tracer's. (Danihelka et al., 2022,
    https://openreview.net/forum?id=bERaNdoegnO, as in mctx; needs the extra `muzero`.)
    """
    mctx = import_library("mctx", "rlcli[muzero]")
    start = int(model.actions.start)
    has_mask = action_masks.split_mask(observation)[1] is not None
    q_transform = functools.partial(
        mctx.qtransform_completed_by_mix_value,
        value_scale=value_scale,
        rescale_values=rescale,
    )

    def predict(
        params: ArrayTree, key: Key, action: Array, hidden: ArrayTree
    ) -> tuple[ArrayTree, ArrayTree]:
        del key  # the model draws nothing
        reward, (hidden, logits, value) = model.predict(params, hidden, start + action)
        discount = jnp.broadcast_to(jnp.float32(gamma), reward.shape)
        output = mctx.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        )
        return output, hidden

    def deciding(scale: Array | float) -> Callable:
        def act(acting, obs, state, first, noise):
            del first  # nothing to forget
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
            weights, tree = output.action_weights, output.search_tree.summary()
            visited_weights = jnp.where(tree.visit_counts > 0, weights, 0.0)
            worth = jnp.sum(visited_weights * tree.qvalues, axis=-1) / jnp.sum(
                visited_weights, axis=-1
            )
            probability = jnp.maximum(
                select_index(weights, output.action), _MIN_PROBABILITY
            )
            extras = {
                "log_prob": jnp.log(probability),
                "action_weights": weights,
                "root_value": worth,
            }
            return Decision(start + output.action, extras), state

        return act

    def log_prob(logits: Array, action: Array) -> Array:
        return select_index(jax.nn.log_softmax(logits), action - start)

    return Policy(
        initial=lambda batch: ((), ()),
        draw=lambda key, batch: key,
        explore=deciding(gumbel_scale),
        exploit=deciding(0.0),
        log_prob=log_prob,
    )
