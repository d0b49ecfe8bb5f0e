"""The context of a TD rule, computed on demand."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Float

from rlcli.errors import RlcliError
from rlcli.networks.heads import Role
from rlcli.networks.memory import merge_time
from rlcli.networks.predictions import Particles, Transform
from rlcli.spaces import describe
from rlcli.types import Array, ArrayTree, Key, PerRow, Policy, Transition
from rlcli.updaters.critics import Backup, Critic, apply_single_steps, initial_carry
from rlcli.updaters.decorator import describe_result, require_type


class RuleContext(NamedTuple):
    """The values of a batch of rows `[T, B]`, computed only when a rule calls for them.

    q⁻ uses the target parameters, or the online parameters if there is no target.
    With several critics, q is their minimum.
    """

    # q⁻(s′, ·), `[T, B, A, K]`
    next_q: Callable[[], Particles]
    # The mean of q⁻(s′, ·), for the selection of the next action; `next_q` evaluates
    # it. Heads that sample fractions, such as IQN's, use different ones for the two.
    target_next_q: Callable[[], Float[Array, "T B A"]]
    # q⁻(s′, a′) of an action sampled from the policy, `[T, B, 1, K]`
    sampled_next_q: Callable[[], Particles]
    online_next_q: Callable[[], Float[Array, "T B A"]]  # q(s′, ·)
    current_q: Callable[[], Float[Array, "T B A"]]  # q⁻(s, ·)
    # q -> π(·|s) of the policy acting on q
    action_probabilities: Callable[[Float[Array, "T B A"]], Float[Array, "T B A"]]
    action: Array  # index of the action taken, from 0


Rule = Callable[..., Backup]


class TDParts(NamedTuple):
    """The parts of a TD updater."""

    rule: Rule
    critic: Critic
    policy: Policy
    space: gymnasium.Space  # action space
    transform: Transform
    # (params, obs, first, carry) -> the outputs that the policy's `log_prob` takes
    outputs: Callable[..., ArrayTree]
    # (q(s, ·) of each critic [C, T, B, A], index of the action taken [T, B]) -> a term
    # of the loss [T, B]
    penalty: Callable[[Array, Array], PerRow] | None = None


def make_context(
    parts: TDParts,
    online: ArrayTree,
    target_params: ArrayTree,
    rows: Transition,
    key: Key,
) -> RuleContext:
    """The context of a rule, with a separate key for each field that samples."""
    critic, transform = parts.critic, parts.transform
    keys = jax.random.split(key, 5)
    shape = rows.first.shape
    next_carry = rows.extras.get("next_carry") or {"online": (), "target": ()}

    def predict_next(
        predict: Callable, role: Role, params_name: str, key: Key, *more: Array
    ) -> Any:
        params = {"online": online, "target": target_params}[params_name]
        function = functools.partial(predict, role, params, key)
        prediction = apply_single_steps(
            function, (rows.next_obs, *more), shape, next_carry[params_name]
        )
        return prediction.particles(transform).min_over_critics()

    @functools.cache
    def next_q() -> Particles:
        return predict_next(critic.predict_all_actions, "bootstrap", "target", keys[0])

    def current_q() -> Float[Array, "T B A"]:
        carry = initial_carry(critic, rows)
        prediction = critic.predict_all_actions(
            "act", target_params, keys[4], rows.obs, rows.first, carry
        )
        return prediction.particles(transform).min_over_critics().mean()

    def sampled_next_q() -> Particles:
        action = _sample_next_action(
            parts.policy, online, rows, next_carry["online"], keys[1]
        )
        prediction = predict_next(
            critic.predict_action, "bootstrap", "target", keys[2], action
        )
        return jax.tree.map(lambda leaf: leaf[..., None, :], prediction)

    def target_next_q() -> Float[Array, "T B A"]:
        if next_q().value.shape[-1] == 1:
            return next_q().mean()  # the same: a scalar head samples no fractions
        # The key of `next_q`, so that the layers have the same noise.
        return predict_next(critic.predict_all_actions, "act", "target", keys[0]).mean()

    return RuleContext(
        next_q=next_q,
        target_next_q=target_next_q,
        sampled_next_q=sampled_next_q,
        online_next_q=lambda: predict_next(
            critic.predict_all_actions, "act", "online", keys[3]
        ).mean(),
        current_q=current_q,
        action_probabilities=functools.partial(_action_probabilities, parts),
        action=rows.action - first_action(parts.space),
    )


def _sample_next_action(
    policy: Policy, acting: ArrayTree, rows: Transition, carries: ArrayTree, key: Key
) -> Array:
    """Samples an action from the policy at `next_obs` of each of `[T, B]` rows."""
    shape = rows.first.shape
    number = rows.first.size
    noise, (fresh, process) = policy.draw(key, number), policy.initial(number)
    carry = merge_time(carries) if jax.tree.leaves(carries) else fresh
    obs, first = merge_time(rows.next_obs), jnp.zeros(number, bool)
    action = policy.explore(acting, obs, (carry, process), first, noise)[0].action
    return jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), action)


def first_action(space: gymnasium.Space) -> int:
    """The first action of a Discrete space, else 0."""
    return int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0


def _action_probabilities(
    parts: TDParts, q: Float[Array, "*batch A"]
) -> Float[Array, "*batch A"]:
    """π(·|s) of the policy acting on the values q."""
    numbers = first_action(parts.space) + jnp.arange(q.shape[-1])

    def probability_of(number: Array) -> Array:
        return parts.policy.log_prob(q, jnp.full(q.shape[:-1], number))

    return jnp.exp(jnp.moveaxis(jax.vmap(probability_of)(numbers), 0, -1))


def expected_next_q(context: RuleContext) -> Particles:
    """q⁻(s′, a′) as a mixture over a′ ~ π(·|s′), `[T, B, 1, A · K]`."""
    probabilities = context.action_probabilities(context.target_next_q())
    mixture = context.next_q().mix(probabilities)
    return jax.tree.map(lambda leaf: leaf[..., None, :], mixture)


_PARTICLES = (
    "`bootstrap_value` is `Particles` `[T, B, M, K]`: M distributions of K values for "
    "each row"
)


def apply_rule(
    function: Rule, label: str, space: gymnasium.Space, context: RuleContext
) -> Backup:
    """Applies a rule; raises an error unless it returns particles for each row.

    `label` names the rule in the error. `space` is the action space.
    """
    result = function(context)
    require_type(label, result, Backup, "return `Backup(bootstrap_value, …)`")
    require_type(
        label,
        result.bootstrap_value,
        Particles,
        "return `Backup(context.next_q(), probability)`, or construct `Particles`",
        "bootstraps from",
    )
    # Actions may have axes of their own.
    _check_shapes(label, space, result, context.action.shape[:2])
    _refuse_sum(label, result)
    return result


def _check_shapes(
    label: str, space: gymnasium.Space, backup: Backup, rows: tuple[int, ...]
) -> None:
    """Refuses a backup whose arrays do not fit rows of the shape (T, B)."""

    def refuse(field: str, array: Any, expected: str) -> NoReturn:
        raise RlcliError(
            f"{label}: `{field}` is {describe_result(array)} instead of {expected}, "
            f"where [T, B] is {[*rows]}",
            _PARTICLES if field.startswith("bootstrap_value") else "",
        )

    (value, probability), policy = backup.bootstrap_value, backup.target_policy
    shape = _shape(value)
    if len(shape) != 4 or shape[:2] != rows:
        refuse("bootstrap_value.value", value, "an array [T, B, M, K]")
    if _shape(probability) != shape:
        expected = f"an array of shape {shape}"
        refuse("bootstrap_value.probability", probability, expected)
    mixture, axes_of_mixture = shape[:3], f"[T, B, M] with M = {shape[2]}"
    for field, array, full_shape, axes in (
        ("probability", backup.probability, mixture, axes_of_mixture),
        ("bonus", backup.bonus, mixture, axes_of_mixture),
        ("reward", backup.reward, rows, "[T, B]"),
    ):
        if not _broadcasts(_shape(array), full_shape):
            refuse(field, array, f"a number or an array that broadcasts to {axes}")
    if policy is not None:
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise RlcliError(
                f"{label} returned a `target_policy`, but the action space is "
                f"{describe(space)}",
                "leave it out: the target policy is then the acting policy",
            )
        if _shape(policy) != (*rows, int(space.n)):
            refuse("target_policy", policy, f"an array [T, B, A] with A = {space.n}")


def _refuse_sum(label: str, backup: Backup) -> None:
    """Refuses several distributions, each with the default probability of 1."""
    probability, number = backup.probability, backup.bootstrap_value.value.shape[2]
    if number > 1 and isinstance(probability, float | int) and probability == 1:
        raise RlcliError(
            f"{label} returned {number} distributions for each row without their "
            "`probability`, so its target would be their sum",
            "return `Backup(bootstrap_value, probability)`; to bootstrap from one of "
            "them, `jax.nn.one_hot(index, bootstrap_value.value.shape[-2])` is its "
            "probability",
        )


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array or a number; (−1,) for any other value."""
    return () if isinstance(value, float | int) else getattr(value, "shape", (-1,))


def _broadcasts(shape: tuple[int, ...], full_shape: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to another one, without changing that."""
    axes = zip(reversed(shape), reversed(full_shape), strict=False)
    return len(shape) <= len(full_shape) and all(n in (1, full) for n, full in axes)
