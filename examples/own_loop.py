"""Q-learning on FrozenLake: the parts of rlcli in a custom training loop."""

from functools import partial

import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import optax

import rlcli
from rlcli.loop.agents import online_agent
from rlcli.policies.discrete import epsilon_greedy
from rlcli.tracers.multi_step import n_step
from rlcli.updaters.td.q_learning import q_learning

env = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=20)


def forward(obs):  # [N] -> [N, actions]
    return hk.Linear(4, w_init=jnp.zeros)(jax.nn.one_hot(obs, 16))


q = rlcli.q_function(forward, env)
tracer = n_step(n=1, gamma=0.9)


def agent(epsilon):  # parts are pure and cheap: build them where they are used
    pi = partial(epsilon_greedy, epsilon=epsilon)
    return online_agent(q_learning(q.parts(pi, optax.adam(0.02))), tracer)


@jax.jit
def act(state, s, epsilon, key, time):
    return rlcli.act(agent(epsilon), state, s, jax.random.fold_in(key, time))


@jax.jit
def learn(state, step, key, time):
    return agent(0.0).learn(state, step, rlcli.clock(time), key)


def train(seed=0, episodes=500):
    monitor, epsilon, key = rlcli.TrainMonitor(env), 1.0, jax.random.key(seed)
    state = agent(epsilon).init(key, rlcli.transition(0, 0, (0, 0.0, False, False)))
    for _ in range(episodes):
        epsilon *= 0.99  # explore less over time
        s, last = monitor.reset()[0], False
        while not last:
            time, first = monitor.T, monitor.t == 0
            a = int(act(state, s, epsilon, key, time))
            s_next, _, terminated, truncated, _ = step_result = monitor.step(a)
            step = rlcli.transition(s, a, step_result, first=first)
            state, metrics = learn(state, step, key, time)
            monitor.record_metrics(metrics)
            s, last = s_next, terminated or truncated
    return agent(epsilon).acting(state)  # the parameters
