"""Playing: how many episodes, which ones, and what they come to."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import recipe
from rlcli.assembly import build
from rlcli.environments.adapters.host import episode_seed
from rlcli.loop import episodes
from rlcli.loop.episodes import Evaluator
from rlcli.loop.progress import EVALUATION
from rlcli.types import Clock, Transition

LIMITED = {"name": "probe-truncation", "num_envs": 3}  # 1 for each of its 5 steps
NETWORK = {"name": "mlp", "layers": [8]}


def player_of(environment, seeds=(0, 1), share=2, epsilon=0.5, **keywords) -> Evaluator:
    data = {
        "environment": environment,
        "network": NETWORK,
        "policy": {"name": "epsilon_greedy", "epsilon": epsilon},
        "updater": "q_learning",
    }
    env, agent = build(recipe.load_recipe(data), seeds).parts(Clock.zero())
    player = Evaluator(env, agent.policy, seeds, share, **keywords)
    player.acting = acting(agent, env, len(seeds))
    return player


def acting(agent, env, seeds: int):
    """Parameters of so many seeds that have learnt nothing."""
    obs = jnp.zeros((1, 1, *env.observation.shape))
    flag, number = jnp.zeros((1, 1), bool), jnp.zeros((1, 1))
    row = Transition(obs, number, number, number, obs, flag, flag, {})

    def begin(seed):
        return agent.acting(agent.init(jax.random.key(seed), row))

    return jax.vmap(begin)(jnp.arange(seeds))


def test_every_environment_counts_exactly_episodes_per_env_episodes():
    player = player_of(LIMITED, share=4)
    played = player.evaluate(player.acting)
    assert played.returns.shape == played.lengths.shape == (2, 3 * 4)
    assert np.all(played.returns == 5)
    assert np.all(played.lengths == 5)
    assert played.num_cut == 0


def test_evaluation_does_not_favour_short_episodes():
    # Of whoever ends first, many short ones would count: each has its share instead.
    player = player_of(
        {"name": "CartPole-v1", "num_envs": 4}, share=3, epsilon=1.0, explore=True
    )
    lengths = player.evaluate(player.acting).lengths
    seen = [[[] for _ in range(4)] for _ in range(2)]
    before = None
    for moment, _ in player._steps(player.acting, 0):
        if moment is None:
            break
        if moment.action is None:
            continue
        now = np.asarray(moment.length)
        for row, index in np.ndindex(2, 4):
            if before is not None and now[row, index] == 0:
                seen[row][index].append(before[row, index] + 1)
        before = now
    for row, index in np.ndindex(2, 4):
        ours = lengths.reshape(2, 4, 3)[row, index]
        first = seen[row][index][:3]  # the last one of all ends with the playing
        assert ours[: len(first)].tolist() == first
        assert len(first) >= 2


def test_the_evaluation_index_determines_the_episodes():
    player = player_of({"name": "CartPole-v1", "num_envs": 4}, share=1)
    first, again, other = (player.evaluate(player.acting, each) for each in (3, 3, 4))
    np.testing.assert_array_equal(first.returns, again.returns)
    assert np.any(first.returns != other.returns)


@pytest.mark.slow
def test_exploit_is_deterministic_and_explore_is_not():
    probe = {"name": "probe-reward-depends-on-action", "num_envs": 50}
    # Whatever the rest of the network says, action 1 is the better one.
    better = jnp.array([[0.0, 1.0]] * 2)
    for explore, expected in ((True, {-1.0, 1.0}), (False, {1.0})):
        player = player_of(probe, share=1, epsilon=1.0, explore=explore)
        head = {**player.acting["q"]["linear_1"], "b": better}
        told = {"q": {**player.acting["q"], "linear_1": head}}
        assert set(player.evaluate(told).returns.ravel()) == expected


def test_endless_episodes_are_truncated_and_counted(monkeypatch):
    monkeypatch.setattr(episodes, "MAX_EPISODE_STEPS", 7)
    player = player_of({**LIMITED, "time_limit": None}, share=2)
    played = player.evaluate(player.acting)
    assert np.all(played.lengths == 7)
    assert np.all(played.returns == 7)
    assert played.num_cut == 2 * 3 * 2  # seeds, environments, episodes


def test_the_rewards_of_evaluation_steps_sum_to_the_return():
    probe = {"name": "probe-two-steps", "num_envs": 1}  # pays 0, then 1
    player = player_of(probe, seeds=(0,), share=2)
    seen = [
        (int(moment.length[0, 0]), float(moment.reward[0, 0]), picture.shape)
        for moment, picture in player.frames(player.acting)
    ]
    pictures = (150, 300, 3)
    assert seen == [
        (0, 0, pictures),
        (1, 0, pictures),
        (0, 1, pictures),
        (1, 0, pictures),
    ]


def greedy(params: dict, obs: np.ndarray) -> int:
    """The best action of a network with one hidden layer, in NumPy."""
    hidden = np.maximum(obs @ params["linear"]["w"] + params["linear"]["b"], 0)
    return int(np.argmax(hidden @ params["linear_1"]["w"] + params["linear_1"]["b"]))


@pytest.mark.parametrize("share", [1, 2])
def test_returns_equal_those_of_a_greedy_loop_over_gymnasium(share):
    seeds, num_envs, occasion = (0, 5), 3, 2
    data = {"name": "gymnasium/CartPole-v1", "num_envs": num_envs}
    player = player_of(data, seeds=seeds, share=share)
    played = player.evaluate(player.acting, occasion)
    env = gymnasium.make("CartPole-v1")
    expected = np.zeros((len(seeds), num_envs, share))
    for row, seed in enumerate(seeds):
        params = jax.tree.map(lambda leaf, at=row: np.asarray(leaf[at]), player.acting)
        sequence = np.random.SeedSequence([seed, EVALUATION, occasion])
        number = int(sequence.generate_state(1)[0])
        for index in range(num_envs):
            for episode in range(share):
                obs, _ = env.reset(seed=episode_seed(number, index, episode))
                over = False
                while not over:
                    answer = env.step(greedy(params["q"], obs))
                    obs, reward, terminated, truncated, _ = answer
                    expected[row, index, episode] += reward
                    over = terminated or truncated
    env.close()
    np.testing.assert_array_equal(played.returns, expected.reshape(len(seeds), -1))
    np.testing.assert_array_equal(played.lengths, played.returns)


def test_a_host_environment_is_closed_even_if_the_iterator_is_not_exhausted():
    player = player_of({"name": "gymnasium/CartPole-v1"}, seeds=(0,), share=1)
    closed = []
    close = player._host_env.close
    player._host_env = player._host_env._replace(
        close=lambda state: closed.append(close(state))
    )
    steps = player._steps(player.acting, 0)
    next(steps)
    steps.close()
    assert len(closed) == 1
