"""Policies over discrete actions."""

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from rlcli.distributions import categorical
from rlcli.distributions.action_masks import is_allowed, mask_outputs
from rlcli.policies import ValuesOffer, policy_from_outputs
from rlcli.registry import register
from rlcli.types import Array, Decision, Key, Policy, Positive, Probability
from rlcli.xla.indexing import is_largest, select_index


@register("policy")
def epsilon_greedy(
    values: ValuesOffer,
    space: gymnasium.spaces.Discrete,
    *,
    epsilon: Probability = 0.05,
) -> Policy:
    """Epsilon-greedy policy: the greedy action, or a random one with probability ε.

    π(a|s) = ε/|A| + (1 − ε) 1[a is greedy] / (number of greedy actions)

    A is the set of legal actions. Ties are broken at random.
    """
    actions, start = int(space.n), int(space.start)
    family = categorical(actions, start)

    def draw(key: Key, batch: int) -> tuple[Float[Array, "B"], Float[Array, "B A"]]:
        uniform = jax.random.uniform(key, (batch, 1 + actions))
        return uniform[:, 0], uniform[:, 1:]

    def probabilities(q: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
        best = is_largest(q)
        greedy = best / jnp.sum(best, axis=-1, keepdims=True)
        is_legal = is_allowed(q)
        uniform = is_legal / jnp.sum(is_legal, axis=-1, keepdims=True)
        return epsilon * uniform + (1 - epsilon) * greedy

    def log_prob(
        q: Float[Array, "*batch A"], action: Int[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        return jnp.log(select_index(probabilities(q), action - start))

    def explore(
        q: Float[Array, "B A"], noise: tuple[Float[Array, "B"], Float[Array, "B A"]]
    ) -> Decision:
        # One random order breaks ties and selects the random action.
        uniform, order = noise
        candidates = is_largest(q) | (is_allowed(q) & (uniform < epsilon)[:, None])
        action = start + _first_in_order(candidates, order)
        return Decision(action, {"log_prob": log_prob(q, action)})

    def exploit(
        q: Float[Array, "B A"], noise: tuple[Float[Array, "B"], Float[Array, "B A"]]
    ) -> Decision:
        return _deterministic_decision(start + _first_in_order(is_largest(q), noise[1]))

    return policy_from_outputs(
        values,
        draw,
        explore,
        exploit,
        log_prob,
        family=family,
        parameters=lambda q: jnp.log(probabilities(q)),
    )


@register("policy")
def boltzmann(
    values: ValuesOffer,
    space: gymnasium.spaces.Discrete,
    *,
    temperature: Positive = 1.0,
) -> Policy:
    """Boltzmann (softmax) policy; greedy for evaluation.

    π(a|s) = exp(q(s, a)/τ) / Σ exp(q(s, ·)/τ)

    Ties are broken at random.
    """
    family = categorical(int(space.n), int(space.start))

    def logits(q: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
        # Subtract the maximum, so that a low temperature does not overflow.
        relative = q - jnp.max(q, axis=-1, keepdims=True)
        return mask_outputs(relative / temperature, is_allowed(q))

    def log_prob(
        q: Float[Array, "*batch A"], action: Int[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        return family.log_prob(logits(q), action)

    def explore(q: Float[Array, "B A"], noise: Float[Array, "B A"]) -> Decision:
        action = family.sample(logits(q), noise)
        return Decision(action, {"log_prob": log_prob(q, action)})

    def exploit(q: Float[Array, "B A"], noise: Float[Array, "B A"]) -> Decision:
        return _deterministic_decision(
            int(space.start) + _first_in_order(is_largest(q), noise)
        )

    return policy_from_outputs(
        values,
        family.draw,
        explore,
        exploit,
        log_prob,
        family=family,
        parameters=logits,
    )


def _first_in_order(
    candidates: Bool[Array, "B A"], order: Float[Array, "B A"]
) -> Int[Array, "B"]:
    """Returns the index of the candidate that comes first in a random order."""
    return jnp.argmax(jnp.where(candidates, order, -jnp.inf), axis=-1)


def _deterministic_decision(action: Int[Array, "B"]) -> Decision:
    """A decision of probability 1; random tie-breaking is ignored."""
    return Decision(action, {"log_prob": jnp.zeros(action.shape)})
