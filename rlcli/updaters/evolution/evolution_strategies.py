"""Evolution strategies: environment i evaluates population member i.

The strategies are those of evosax. This module computes their fitness from whole
unrolls and makes the members act.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt
from jax.custom_batching import sequential_vmap
from jax.flatten_util import ravel_pytree

from rlcli.errors import RlcliError
from rlcli.networks.heads import distribution_head
from rlcli.policies import DistributionOffer, ValuesOffer
from rlcli.registry import register
from rlcli.registry.libraries import import_library
from rlcli.types import (
    Array,
    ArrayTree,
    Key,
    Params,
    Policy,
    Positive,
    Probability,
    Report,
    Transition,
    Updater,
    UpdaterTraits,
)
from rlcli.updaters import Parts, Spaces, default_distribution, zero_estimates
from rlcli.updaters.learner import NOT_FAILED
from rlcli.xla.control_flow import tree_select

_DEFAULTS = {"policy": "mode", "unroll": 200, "reset": True, "extra": "evolution"}
_InitialDeviation = Annotated[float, Gt(0.0), "structural"]


class EvolutionState(NamedTuple):
    """The state of an evolution strategy: one generation."""

    members: Params  # `[P, ...]`: parameters of environment i
    best: Params  # parameters for evaluation
    strategy: ArrayTree  # state of the evosax strategy
    failed: Array  # int32: the update whose fitness was not finite, or `NOT_FAILED`


class Strategy(NamedTuple):
    """An evolution strategy over D-dimensional vectors, for P members."""

    begin: Callable[
        [Key, Array], tuple[ArrayTree, jax.Array]
    ]  # key, [D] -> state, [P, D]
    ask: Callable[[Key, ArrayTree], tuple[ArrayTree, jax.Array]]  # -> state, [P, D]
    best: Callable[[ArrayTree], jax.Array]  # state -> [D]
    algorithm: Any  # of evosax
    settings: Any  # of the algorithm


@register("updater", **_DEFAULTS)
def open_es(
    parts: Parts, *, deviation: Positive = 0.1, antithetic: bool = True
) -> Updater:
    """OpenAI evolution strategy (OpenAI-ES): estimates the gradient from returns.

        θᵢ = θ + σ εᵢ        g = −1/(P σ) Σ r(Fᵢ) εᵢ,  ε ~ N(0, 1)

    There are P members, one for each environment; σ is `deviation`. The recipe's
    optimizer takes a step along −g. Fᵢ is the mean return of member i over its unroll,
    r its rank, from −½ to ½. With `antithetic`, noise comes in pairs ε and −ε. The
    number of environments has to be even. Evaluation uses θ. (Salimans et al., 2017,
    https://arxiv.org/abs/1703.03864; needs the extra `evolution`.)
    """
    members = parts.spaces.num_envs
    if members % 2:  # evosax refuses it without antithetic sampling, too
        raise RlcliError(
            "updater `open_es` needs an even number of members, but `num_envs` is "
            f"{members}",
            "set `num_envs` to an even number",
        )

    def strategy(algorithms: Any, example: Array, unravel: Callable) -> Strategy:
        algorithm = algorithms.Open_ES(
            members,
            example,
            use_antithetic_sampling=antithetic,
            optimizer=_flat_optimizer(parts.optimizer, unravel),
        )
        return _distribution_strategy(
            algorithm, algorithm.default_params, {"std": jnp.float32(deviation)}
        )

    return _evolution_updater("open_es", parts, strategy)


@register("updater", **_DEFAULTS)
def cma_es(parts: Parts, *, deviation: _InitialDeviation = 0.1) -> Updater:
    """Covariance matrix adaptation evolution strategy (CMA-ES).

        θᵢ ~ N(θ, σ² C)        θ ← Σ wᵢ θᵢ over the better half of the members

    The evolution paths of θ adapt σ, which starts at `deviation`, and the covariance C
    (Hansen, 2016, https://arxiv.org/abs/1604.00772). Evaluation uses θ. C has one row
    per parameter, so networks should have at most hundreds of parameters. The optimizer
    is not used. (Needs the extra `evolution`.)
    """
    _require_population("cma_es", parts.spaces)

    def strategy(algorithms: Any, example: Array, unravel: Callable) -> Strategy:
        algorithm = algorithms.CMA_ES(parts.spaces.num_envs, example)
        settings = algorithm.default_params.replace(std_init=jnp.float32(deviation))
        # The eigenvectors of C come from LAPACK, which can deadlock in a batch of seeds
        # (see `loop.seeds.map_seeds`).
        algorithm.ask = sequential_vmap(algorithm.ask)
        return _distribution_strategy(algorithm, settings, {})

    return _evolution_updater("cma_es", parts, strategy)


@register("updater", **_DEFAULTS)
def simple_ga(
    parts: Parts,
    *,
    deviation: Positive = 0.1,
    crossover: Probability = 0.0,
    elite: Annotated[int, Ge(0)] = 1,
) -> Updater:
    """Simple genetic algorithm (GA): mutated children of the better half of members.

        θᵢ′ = (1 − m) θ_a + m θ_b + σ ε,  ε ~ N(0, 1)

    The parents a and b are sampled from the better half. Each entry of m is 1 with
    probability `crossover`; σ is `deviation`. The fittest `elite` members stay
    unchanged and are evaluated again; Such et al. (2017,
    https://arxiv.org/abs/1712.06567) keep one. Evaluation uses the fittest member of
    the last evaluated generation. The optimizer is not used. (Needs the extra
    `evolution`.)
    """
    _require_population("simple_ga", parts.spaces)
    size = parts.spaces.num_envs
    if elite >= size:
        raise RlcliError(
            f"updater `simple_ga` keeps {elite} of {size} members unchanged",
            "set `elite` to less than `environment.num_envs`",
        )

    def strategy(algorithms: Any, example: Array, unravel: Callable) -> Strategy:
        algorithm = algorithms.SimpleGA(size, example)
        settings = algorithm.default_params.replace(
            crossover_rate=jnp.float32(crossover)
        )
        spread = jnp.float32(deviation)

        def begin(key: Key, flat: Array) -> tuple[ArrayTree, jax.Array]:
            noise = jax.random.normal(key, (size, flat.size))
            members = flat + spread * noise
            state = algorithm.init(key, members, jnp.zeros(size), settings)
            return _strong_types(state), members

        def ask(key: Key, state: Any) -> tuple[ArrayTree, jax.Array]:
            children, state = algorithm.ask(key, state.replace(std=spread), settings)
            fittest = state.population[jnp.argsort(state.fitness)[:elite]]
            return _strong_types(state), children.at[:elite].set(fittest)

        best = algorithm.get_best_solution
        return Strategy(begin, ask, best, algorithm, settings)

    return _evolution_updater("simple_ga", parts, strategy)


def fitness(steps: Transition) -> Array:
    """The mean return of the episodes of an unroll `[T, B]`, for each member: `[B]`.

    Uses the raw rewards. An episode that the end of the unroll cuts counts only if it
    is the member's first: otherwise its partial return would bias the mean. An episode
    that the environment ends at that step, by a time limit of its own, is complete.
    """
    number = jnp.cumsum(steps.last, axis=0) - steps.last  # episode number, from 0
    has_ended = steps.last[-1] & ~steps.extras["cut"][-1]
    is_partial = (number == number[-1]) & (number > 0) & ~has_ended
    total = jnp.sum(jnp.where(is_partial, 0.0, steps.extras["reward"]), axis=0)
    return total / jnp.maximum(jnp.sum(steps.last & ~is_partial, axis=0), 1)


def _evolution_updater(
    name: str, parts: Parts, build_strategy: Callable[[Any, Array, Callable], Strategy]
) -> Updater:
    """The updater of a strategy: members act, and the strategy gets their fitness."""
    algorithms = import_library("evosax.algorithms", "evolution")
    spaces = parts.spaces
    family = default_distribution(spaces.action, name)
    network = parts.networks("policy", functools.partial(distribution_head, family))
    offers: dict[str, Any] = {"distribution": DistributionOffer(network, family)}
    if isinstance(spaces.action, gymnasium.spaces.Discrete):
        offers["values"] = ValuesOffer(network)
    policy = parts.policies(**offers, space=spaces.action)
    shapes = jax.eval_shape(network.init, jax.eval_shape(lambda: jax.random.key(0)))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    example, unravel = ravel_pytree(blank)
    strategy = build_strategy(algorithms, example, unravel)

    def init(key: Key) -> EvolutionState:
        params = network.init(key)
        state, members = strategy.begin(
            jax.random.fold_in(key, 1), ravel_pytree(params)[0]
        )
        return EvolutionState(
            jax.vmap(unravel)(members), params, state, jnp.int32(NOT_FAILED)
        )

    def update(state, batch, weight, clock, key):
        del weight  # 1: the rows are those of the unroll
        tell_key, ask_key = jax.random.split(key)
        fitnesses = fitness(batch)
        members = jax.vmap(lambda member: ravel_pytree(member)[0])(state.members)
        strategy_state, _ = strategy.algorithm.tell(
            tell_key, members, -fitnesses, state.strategy, strategy.settings
        )
        strategy_state = _strong_types(strategy_state)
        next_strategy, members = strategy.ask(ask_key, strategy_state)
        fails_now = ~jnp.all(jnp.isfinite(fitnesses)) & (state.failed == NOT_FAILED)
        failed = jnp.where(fails_now, clock.updates, state.failed)
        after = EvolutionState(
            jax.vmap(unravel)(members),
            unravel(strategy.best(strategy_state)),
            next_strategy,
            failed,
        )
        state = state._replace(failed=failed)
        metrics = {"fitness": jnp.mean(fitnesses), "fitness_best": jnp.max(fitnesses)}
        return tree_select(failed == NOT_FAILED, after, state), Report(
            jnp.zeros(spaces.num_envs), metrics
        )

    return Updater(
        init=init,
        acting=lambda state: {"members": state.members, "best": state.best},
        policy=_population_policy(policy),
        update=update,
        estimate=zero_estimates,
        traits=UpdaterTraits(
            replays="none", requires=("cut",), requires_single_steps=f"updater `{name}`"
        ),
    )


def _population_policy(policy: Policy) -> Policy:
    """A policy where environment i explores with member i; all exploit with the best.

    The inner policy sees each environment as a batch of one.
    """

    def initial(batch: int) -> ArrayTree:
        single = policy.initial(1)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (batch, *jnp.shape(leaf))), single
        )

    def draw(key: Key, batch: int) -> ArrayTree:
        return jax.vmap(lambda env_key: policy.draw(env_key, 1))(
            jax.random.split(key, batch)
        )

    def per_environment(act_once: Callable, axis: int | None) -> Callable:
        act_all = jax.vmap(act_once, in_axes=(axis, 0, 0, 0, 0))

        def act(params, obs, state, first, noise):
            obs, first = jax.tree.map(lambda leaf: leaf[:, None], (obs, first))
            output, state = act_all(params, obs, state, first, noise)
            return jax.tree.map(lambda leaf: leaf[:, 0], output), state

        return act

    def explore(params, obs, state, first, noise):
        batch = first.shape[0]
        num_members = jax.tree.leaves(params["members"])[0].shape[0]
        # Evaluation may use a different number of environments.
        members = params["members"]
        if batch != num_members:
            index = jnp.arange(batch) % num_members
            members = jax.tree.map(lambda leaf: leaf[index], members)
        explore_members = per_environment(policy.explore, 0)
        return explore_members(members, obs, state, first, noise)

    def exploit(params, obs, state, first, noise):
        exploit_best = per_environment(policy.exploit, None)
        return exploit_best(params["best"], obs, state, first, noise)

    def of_best(inspect: Callable) -> Callable:
        def inspect_best(params, obs, state, first):
            obs, first = jax.tree.map(lambda leaf: leaf[:, None], (obs, first))
            inspect_all = jax.vmap(inspect, in_axes=(None, 0, 0, 0))
            return inspect_all(params["best"], obs, state, first)[:, 0]

        return inspect_best

    return policy._replace(
        initial=initial,
        draw=draw,
        explore=explore,
        exploit=exploit,
        inspection=policy.inspection.map(of_best),
    )


def _distribution_strategy(
    algorithm: Any, settings: Any, fixed_settings: dict[str, Array]
) -> Strategy:
    """An evosax strategy with a mean; `fixed_settings` override fields of its state."""

    def ask(key: Key, state: Any) -> tuple[ArrayTree, jax.Array]:
        members, state = algorithm.ask(key, state.replace(**fixed_settings), settings)
        return _strong_types(state), members

    def begin(key: Key, flat: Array) -> tuple[ArrayTree, jax.Array]:
        begin_key, ask_key = jax.random.split(key)
        return ask(ask_key, algorithm.init(begin_key, flat, settings))

    return Strategy(begin, ask, algorithm.get_mean, algorithm, settings)


def _flat_optimizer(
    optimizer: optax.GradientTransformation, unravel: Callable[[Array], Params]
) -> optax.GradientTransformation:
    """Adapts an optimizer of parameter groups to flat vectors."""

    def init(params: Any) -> ArrayTree:
        return optimizer.init(unravel(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        change, state = optimizer.update(unravel(updates), state, unravel(params))
        return ravel_pytree(change)[0], state

    return optax.GradientTransformation(init, update)


def _strong_types(state: ArrayTree) -> ArrayTree:
    """Removes weak types, which would change the type of the state in a loop."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)


def _require_population(name: str, spaces: Spaces) -> None:
    """Raises an error if there is only one environment."""
    if spaces.num_envs < 2:
        raise RlcliError(
            f"updater `{name}` needs at least 2 members, but there is 1 environment",
            "raise `environment.num_envs`: environment i evaluates member i",
        )
