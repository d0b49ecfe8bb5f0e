"""Kinds: each object has exactly one kind."""

import gymnasium
import haiku as hk
import jax.numpy as jnp
import optax
import pytest

import rlcli
from rlcli import registry, utils
from rlcli.policies import DistributionOffer, ValuesOffer
from rlcli.tracers.multi_step import n_step
from rlcli.types import Network
from rlcli.updaters import Parts, Spaces

ACTIONS = gymnasium.spaces.Discrete(3)
RANDOM = registry.find("policy", "random").factory(ACTIONS)


def network(*groups):
    """A network with these parameter groups."""

    def init(key):
        del key
        return {group: {"w": jnp.zeros(2)} for group in groups}

    return Network(init, lambda *arguments: ((), ()), lambda batch: ())


def of_updater(updater, name):
    """The network that an updater requests with a name."""
    asked = {}

    def networks(name, head, action=None):
        del head, action
        return asked.setdefault(name, network("shared", name))

    spaces = Spaces(gymnasium.spaces.Box(-1, 1, (4,)), ACTIONS)
    factory = registry.find("updater", updater).factory
    parts = Parts(spaces, networks, lambda **offers: RANDOM, optax.sgd(0.1))
    offers = {"parts": parts, "tracer": n_step()}
    registry.call_factory(factory, offers, {})
    return asked[name]


OBJECTS = {
    "policy": RANDOM,
    "q by hand": rlcli.q_function(
        lambda obs: hk.Linear(2)(obs), gymnasium.make("CartPole-v1")
    ),
    "q of q_learning": of_updater("q_learning", "q"),
    "a critic": network("critic"),
    "twin critics": network("shared", "critic_1", "critic_2"),
    "values": ValuesOffer(network("whatever")),
    "value of ppo": of_updater("ppo", "value"),
    "policy network of ppo": of_updater("ppo", "policy"),
    "distribution": DistributionOffer(network("policy"), distribution=None),
    "value of model_learning": of_updater("model_learning", "value"),
    "transition of model_learning": of_updater("model_learning", "transition"),
    "reward of model_learning": of_updater("model_learning", "reward"),
    "continuation of model_learning": of_updater("model_learning", "continuation"),
    "transition model": network("transition"),
    "stochastic transition model": DistributionOffer(network("transition"), None),
    "reward function": network("shared", "reward"),
    "two in one": network("q", "value"),
    "shared alone": network("shared"),
    "no mapping": Network(lambda key: jnp.zeros(2), None, None),
    "number": 3,
    "function": len,
}
KINDS = {
    "is_policy": {"policy"},
    "is_qfunction": {
        *["q by hand", "q of q_learning", "a critic", "twin critics", "values"]
    },
    "is_vfunction": {"value of ppo", "value of model_learning"},
    "is_stochastic": {"policy", "distribution", "stochastic transition model"},
    "is_transition_model": {
        *["transition model", "stochastic transition model"],
        "transition of model_learning",
    },
    "is_reward_function": {"reward function", "reward of model_learning"},
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("question", KINDS)
def test_each_object_has_exactly_one_kind(question, name):
    assert getattr(utils, question)(OBJECTS[name]) is (name in KINDS[question])
