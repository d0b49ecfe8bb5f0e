"""MinAtar engine: sticky actions, the board, and states packed into words."""

import functools
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key, Probability
from rlcli.xla.fusion_barrier import materialize

SIZE = 10  # cells per side of the board
CELLS = SIZE * SIZE
ALL_ACTIONS = NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = tuple(range(6))
WORD_BITS = 32


class Channel(NamedTuple):
    """One kind of object on the board, and its appearance."""

    name: str
    colour: str
    share: float = 0.9  # of a cell's width


class Sprites(NamedTuple):
    """The positions of objects on the board: scalars, or arrays `[n]`."""

    y: Array | int  # row; 0 is the top
    x: Array | int  # column
    channel: Array | int  # the index of its channel
    visible: Array | bool = True  # false: not on the board


class GameRules(NamedTuple):
    """The rules of a game. Its state is a NamedTuple of integers and bools."""

    channels: tuple[Channel, ...]
    actions: tuple[int, ...]  # the actions with an effect: the minimal set
    max_values: ArrayTree  # the maximum value of each field of a state
    begin: Callable[[Key], ArrayTree]  # key -> state
    play: Callable[..., tuple[ArrayTree, Array, Array]]
    # (state, action, noise, ramping) -> state, reward, terminated;
    # ramping, a bool: whether the difficulty increases, if the game supports it
    paint: Callable[[ArrayTree], tuple[Array | None, list[Sprites]]]
    # state -> a board, bool[10, 10 · channels] or flat, or None if empty; and sprites
    words: int = 0  # the number of random 32-bit words per step
    # uint32[words] -> noise
    draw_noise: Callable[[Array], ArrayTree] = lambda words: ()


class PlayState(NamedTuple):
    """The state of the game, and the last action, which may be repeated."""

    game: ArrayTree
    action: Array  # int32: the last action taken, of all six


class GameNoise(NamedTuple):
    """The randomness of one step."""

    repeat: Array  # bool: whether the last action is repeated
    game: ArrayTree


_STICKY = (
    "the probability that the last action is repeated. It does not apply to the first "
    "step of an episode; MinAtar repeats the last action of the previous episode."
)


def register_game(
    name: str, *, ramping: str, minimal: str
) -> Callable[[Callable[[], GameRules]], Callable[..., Core]]:
    """Returns a decorator that registers a game under its two ids in MinAtar.

    `-v0` has all six actions; `-v1` has `minimal_actions: true` by default. `ramping`
    and `minimal` describe two options of the game.
    """

    def decorate(make_rules: Callable[[], GameRules]) -> Callable[..., Core]:
        texts = {"sticky_action_prob": _STICKY}
        texts |= {"difficulty_ramping": ramping, "minimal_actions": minimal}
        options = [
            textwrap.fill(f"        {option}: {text}", 88, subsequent_indent=" " * 12)
            for option, text in texts.items()
        ]
        doc = "\n".join([make_rules.__doc__ or "", "    Args:", *options])
        for is_minimal in (True, False):
            factory = _make_factory(make_rules, doc, is_minimal)
            register("environment", f"MinAtar/{name}-v{int(is_minimal)}")(factory)
        return factory

    return decorate


def _make_factory(
    make_rules: Callable[[], GameRules], doc: str, is_minimal: bool
) -> Callable[..., Core]:
    """The factory of a version of a game; `is_minimal`: by default."""

    def factory(
        *,
        sticky_action_prob: Probability = 0.1,
        difficulty_ramping: bool = True,
        minimal_actions: bool = is_minimal,
    ) -> Core:
        options = sticky_action_prob, difficulty_ramping, minimal_actions
        return game_environment(make_rules(), *options)

    factory.__name__ = make_rules.__name__
    factory.__module__, factory.__doc__ = make_rules.__module__, doc
    return factory


def game_environment(
    rules: GameRules,
    sticky_action_prob: Probability,
    difficulty_ramping: bool,
    minimal_actions: bool,
) -> Core:
    """Builds the environment of a game.

    Unlike MinAtar's, `reset` clears the last action, so that episodes are independent.
    With `minimal_actions`, action i is `rules.actions[i]` instead of i of all six.
    """
    max_values = max_state(rules)
    actions = rules.actions if minimal_actions else ALL_ACTIONS

    def observe(state: ArrayTree) -> Array:
        game = unpack_state(max_values, state).game
        return _observe(rules.paint, len(rules.channels), game)

    def begin(key: Key) -> ArrayTree:
        return pack_state(max_values, PlayState(rules.begin(key), jnp.int32(NOTHING)))

    def draw(key: Key) -> GameNoise:
        words = jax.random.bits(key, (1 + rules.words,))
        share = (words[0] >> 8) * jnp.float32(2.0**-24)  # in [0, 1)
        return GameNoise(share < sticky_action_prob, rules.draw_noise(words[1:]))

    def step(state: ArrayTree, action: Array, noise: GameNoise) -> tuple:
        game, last = unpack_state(max_values, state)
        if actions != ALL_ACTIONS:
            action = jnp.asarray(actions)[action]
        action = jnp.where(noise.repeat, last, action)
        game, reward, terminated = rules.play(
            game, action, noise.game, difficulty_ramping
        )
        # Without the barrier, XLA recomputes an unbatched game for each of its cells.
        words = materialize(pack_state(max_values, PlayState(game, action)))
        return words, reward, terminated

    def render(state: ArrayTree) -> np.ndarray:
        words = tuple(np.asarray(word) for word in state)
        return _draw(rules.channels, np.asarray(observe(words)))

    board = spaces.boolean_box(SIZE, SIZE, len(rules.channels))
    return native_core(
        begin, step, observe, board, len(actions), render=render, draw=draw
    )


# Compiled separately, because rendering calls it outside of compiled programs.
@functools.partial(jax.jit, static_argnames=("paint", "channels"))
def _observe(paint: Callable, channels: int, game: ArrayTree) -> Array:
    return paint_board(channels, *paint(game))


def paint_board(channels: int, start: Array | None, sprites: list[Sprites]) -> Array:
    """Paints an observation, bool `[10, 10, channels]`: the sprites over `start`."""
    cells = jnp.zeros(CELLS * channels, bool) if start is None else jnp.asarray(start)
    # The scatters come last: otherwise XLA fuses elementwise operations into their
    # consumers, over four short axes instead of one long axis, at ten times the cost.
    # There is one scatter per sprite, since XLA would compute combined indices one by
    # one.
    for sprite in sprites:
        x = sprite.x * channels + sprite.channel
        index = (sprite.y, x) if cells.ndim == 2 else (sprite.y * SIZE * channels + x,)
        # `mode="drop"` ignores the out-of-bounds index of an invisible sprite.
        index = (jnp.where(sprite.visible, index[0], len(cells)), *index[1:])
        cells = cells.at[index].set(True, mode="drop")
    return cells.reshape(SIZE, SIZE, channels)


def x_step(right: Array) -> Array:
    """The change of x: 1 to the right, −1 to the left."""
    return jnp.where(right, 1, -1)


def is_on_board(x: Array) -> Array:
    """Whether a column is on the board."""
    return (x >= 0) & (x < SIZE)


def max_state(rules: GameRules) -> ArrayTree:
    """The maximum value of every field of a state."""
    return PlayState._make((rules.max_values, FIRE))


def pack_state(max_values: ArrayTree, state: ArrayTree) -> tuple[Array, ...]:
    """Packs a state of small integers into a few 32-bit words.

    Each leaf of a state is a separate loop in the compiled program, which recomputes
    everything the leaf depends on. Fewer leaves are faster: two or three words instead
    of a dozen.

    Args:
        max_values: the maximum value of each field, in the field's shape. Fields of one
            shape share words of that shape.
        state: a tree like `max_values`; no field is negative, unless it has all 32
            bits.
    """
    words: list[Array] = []
    for field, place in zip(jax.tree.leaves(state), _fields(max_values), strict=True):
        part = jnp.asarray(field).astype(jnp.uint32) << place.offset
        if place.word == len(words):
            words.append(part)
        else:
            words[place.word] = words[place.word] | part
    return tuple(words)


def unpack_state(max_values: ArrayTree, words: tuple[Array, ...]) -> Any:
    """Unpacks the words of `pack_state` into a state of int32 and bool."""
    fields = []
    for place in _fields(max_values):
        value = words[place.word] >> place.offset & np.uint32(2**place.bits - 1)
        fields.append(value.astype(place.dtype))
    return jax.tree.unflatten(jax.tree.structure(max_values), fields)


class _Field(NamedTuple):
    """The position of a field in the words."""

    word: int
    offset: int
    bits: int
    dtype: type


def _fields(max_values: ArrayTree) -> list[_Field]:
    fields: list[_Field] = []
    shapes: list[tuple[int, ...]] = []  # the shape of each word
    used_bits: list[int] = []  # the number of bits used in each word
    for limit in map(np.asarray, jax.tree.leaves(max_values)):
        bits = int(limit.max()).bit_length()
        candidates = (
            index
            for index, shape in enumerate(shapes)
            if shape == limit.shape and used_bits[index] + bits <= WORD_BITS
        )
        word = next(candidates, len(shapes))
        if word == len(shapes):
            shapes.append(limit.shape)
            used_bits.append(0)
        dtype = jnp.bool_ if limit.dtype == bool else jnp.int32
        fields.append(_Field(word, used_bits[word], bits, dtype))
        used_bits[word] += bits
    return fields


def _draw(channels: tuple[Channel, ...], board: np.ndarray) -> np.ndarray:
    """Draws the board as coloured cells with a legend, `[420, 600, 3]` uint8.

    In a shared cell, smaller objects are drawn on top of larger ones.
    """
    cell, margin = 40, 10
    canvas = drawing.Canvas(600, 420)
    canvas.box((margin, margin), SIZE * cell, SIZE * cell, drawing.INK)
    for row, column in np.ndindex(SIZE, SIZE):
        corner = (margin + column * cell + 1, margin + row * cell + 1)
        canvas.box(corner, cell - 2, cell - 2, "#293548")

    def draw_object(channel: Channel, x: float, y: float, width: float) -> None:
        side = channel.share * width
        corner = (x + (width - side) / 2, y + (width - side) / 2)
        canvas.box(corner, side, side, channel.colour, radius=side / 8)

    for number in sorted(range(len(channels)), key=lambda i: -channels[i].share):
        for row, column in np.argwhere(board[:, :, number]):
            x, y = margin + column * cell, margin + row * cell
            draw_object(channels[number], x, y, cell)
    for number, channel in enumerate(channels):
        top = 2 * margin + number * 36
        canvas.box((430, top), 26, 26, drawing.INK, radius=3)
        draw_object(channel, 430, top, 26)
        label = channel.name.replace("_", " ")
        canvas.text((468, top + 13), label, 15, anchor="lm")
    return canvas.pixels()
