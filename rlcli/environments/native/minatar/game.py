"""Games: what MinAtar's five share: actions that stick, a board, and packed states."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli import spaces
from rlcli.environments import drawing
from rlcli.environments.native.timesteps import make_timestep
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Environment, Key, Probability, TimeStep
from rlcli.xla.fusion_barrier import materialize

SIZE = 10  # cells along either side of the board
CELLS = SIZE * SIZE
ALL_ACTIONS = NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = tuple(range(6))
WORD_BITS = 32  # bits


class Channel(NamedTuple):
    """One kind of thing on the board, and how it is drawn."""

    name: str
    colour: str
    share: float = 0.9  # of a cell's width that it covers


class Sprites(NamedTuple):
    """Where things are on a board: scalars, or arrays `[n]`."""

    y: Array  # row; 0 is the top
    x: Array  # column
    channel: Array | int  # its number
    visible: Array | bool = True  # where false it is not on the board


class GameRules(NamedTuple):
    """A game. Its state is a record of whole numbers and bools."""

    channels: tuple[Channel, ...]
    actions: tuple[int, ...]  # those that do something: the minimal set
    max_values: ArrayTree  # the largest value that each field of a state can have
    begin: Callable[[Key], ArrayTree]  # key -> state
    words: int  # how many words of 32 random bits a step needs
    draw_noise: Callable[[Array], ArrayTree]  # uint32[words] -> noise
    play: Callable[..., tuple[ArrayTree, Array, Array]]
    # (state, action, noise, ramping) -> state, reward, whether that was the end;
    # ramping, a bool: whether it becomes harder, if the game does at all
    paint: Callable[[ArrayTree], tuple[Array | None, list[Sprites]]]
    # state -> what is on the board: bool[10, 10 · channels] or flat, if not nothing,
    # and things


class PlayState(NamedTuple):
    """A game, and the action that may stick."""

    game: ArrayTree
    action: Array  # int32: the last one taken, among all six


class GameNoise(NamedTuple):
    """What is random in one step."""

    repeat: Array  # bool: whether the last action is taken again
    game: ArrayTree


def register_game(name: str) -> Callable[[Callable], Callable]:
    """A decorator that registers a factory under MinAtar's two ids of a game.

    `-v0` takes all six actions; `-v1` is the same with `minimal_actions` true.
    """

    def decorate(factory: Callable[..., Environment]) -> Callable[..., Environment]:
        @functools.wraps(factory)
        def minimal(**options: Any) -> Environment:
            return factory(**{"minimal_actions": True, **options})

        register("environment", f"MinAtar/{name}-v0")(factory)
        signature = inspect.signature(factory, eval_str=True)
        parameters = [
            parameter.replace(default=True)
            if parameter.name == "minimal_actions"
            else parameter
            for parameter in signature.parameters.values()
        ]
        vars(minimal)["__signature__"] = signature.replace(parameters=parameters)
        register("environment", f"MinAtar/{name}-v1")(minimal)
        return factory

    return decorate


def game_environment(
    rules: GameRules,
    *,
    sticky_action_prob: Probability,
    difficulty_ramping: bool,
    minimal_actions: bool,
) -> Environment:
    """A core that plays by `rules`.

    Args:
        rules: the game.
        sticky_action_prob: how likely the last action is taken instead of the given
            one. What sticks is forgotten at the end of an episode, so that none depends
            on another; MinAtar's `reset` leaves it as it is.
        difficulty_ramping: whether the game becomes harder.
        minimal_actions: whether action i is `rules.actions[i]`, instead of i of six.
    """
    max_values = max_state(rules)
    actions = rules.actions if minimal_actions else ALL_ACTIONS

    def observe(game: ArrayTree) -> Array:
        return _observe(rules.paint, len(rules.channels), game)

    def reset(key: Key) -> tuple[ArrayTree, Array]:
        game = rules.begin(key)
        return pack(max_values, PlayState(game, jnp.int32(NOTHING))), observe(game)

    def draw(key: Key) -> GameNoise:
        words = jax.random.bits(key, (1 + rules.words,))
        share = (words[0] >> 8) * jnp.float32(2.0**-24)  # in [0, 1)
        return GameNoise(share < sticky_action_prob, rules.draw_noise(words[1:]))

    def step(
        state: ArrayTree, action: Array, noise: GameNoise
    ) -> tuple[ArrayTree, TimeStep]:
        game, last = unpack(max_values, state)
        if actions != ALL_ACTIONS:
            action = jnp.asarray(actions)[action]
        action = jnp.where(noise.repeat, last, action)
        game, reward, terminated = rules.play(
            game, action, noise.game, difficulty_ramping
        )
        # Else a lone game would be played anew for each of its cells.
        words = materialize(pack(max_values, PlayState(game, action)))
        obs = observe(unpack(max_values, words).game)
        return words, make_timestep(obs, reward, terminated)

    def render(state: ArrayTree) -> np.ndarray:
        words = tuple(np.asarray(word) for word in state)
        return _draw(
            rules.channels, np.asarray(observe(unpack(max_values, words).game))
        )

    return Environment(
        reset=reset,
        step=step,
        observation=spaces.boolean_box(SIZE, SIZE, len(rules.channels)),
        action=gymnasium.spaces.Discrete(len(actions)),
        render=render,
        draw=draw,
    )


# Compiled by itself, for it is called outside of programs too: for every picture.
@functools.partial(jax.jit, static_argnames=("paint", "channels"))
def _observe(paint: Callable, channels: int, game: ArrayTree) -> Array:
    return paint_board(channels, *paint(game))


def paint_board(channels: int, start: Array | None, things: list[Sprites]) -> Array:
    """An observation, bool `[10, 10, channels]`: `start`, with `things` set upon it."""
    cells: Array = jnp.zeros(CELLS * channels, bool) if start is None else start
    # The scatters come last: XLA would fuse elementwise work into what reads it, over
    # four short axes instead of one long one, at ten times the cost. And one for each
    # of them: put together, their places would be worked out one by one.
    for sprite in things:
        x = sprite.x * channels + sprite.channel
        index = (sprite.y, x) if cells.ndim == 2 else (sprite.y * SIZE * channels + x,)
        index = (
            jnp.where(sprite.visible, index[0], len(cells)),
            *index[1:],
        )  # what is beyond drops
        cells = cells.at[index].set(True, mode="drop")
    return cells.reshape(SIZE, SIZE, channels)


def x_step(right: Array) -> Array:
    """The step in x: 1 for what goes right, −1 for what goes left."""
    return jnp.where(right, 1, -1)


def is_on_board(x: Array) -> Array:
    """Whether a column is on the board."""
    return (x >= 0) & (x < SIZE)


def max_state(rules: GameRules) -> PlayState:
    """The largest value of every field of a core's state, for `pack` and `unpack`."""
    return PlayState(rules.max_values, FIRE)  # pyright: ignore[reportArgumentType]


def pack(max_values: ArrayTree, state: ArrayTree) -> tuple[Array, ...]:
    """A record of small numbers in a few words of 32 bits.

    Every leaf of a state is a loop of its own in the compiled program, which works out
    anew all that it needs, so fewer are faster: two or three words instead of a dozen.

    Args:
        max_values: the largest value of each field, in the field's shape. Fields of one
            shape share words of that shape.
        state: a record like `max_values`; no field is negative, unless it has all 32
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


def unpack(max_values: ArrayTree, words: tuple[Array, ...]) -> Any:
    """The record that `pack` made words of: int32 and bool."""
    fields = [
        (words[place.word] >> place.offset & np.uint32(2**place.bits - 1)).astype(
            place.dtype
        )
        for place in _fields(max_values)
    ]
    return jax.tree.unflatten(jax.tree.structure(max_values), fields)


class _Field(NamedTuple):
    """Where a field lies in the words."""

    word: int
    offset: int
    bits: int
    dtype: type


def _fields(max_values: ArrayTree) -> list[_Field]:
    places: list[_Field] = []
    shapes: list[tuple[int, ...]] = []  # of each word
    used_bits: list[int] = []  # bits of it
    for limit in map(np.asarray, jax.tree.leaves(max_values)):
        bits = int(limit.max()).bit_length()
        fitting = (
            index
            for index, shape in enumerate(shapes)
            if shape == limit.shape and used_bits[index] + bits <= WORD_BITS
        )
        word = next(fitting, len(shapes))
        if word == len(shapes):
            shapes.append(limit.shape)
            used_bits.append(0)
        dtype = jnp.bool_ if limit.dtype == bool else jnp.int32
        places.append(_Field(word, used_bits[word], bits, dtype))
        used_bits[word] += bits
    return places


def _draw(channels: tuple[Channel, ...], board: np.ndarray) -> np.ndarray:
    """The board as coloured cells, `[420, 600, 3]` uint8, with a legend beside it.

    Where things share a cell the smaller ones lie on top.
    """
    cell, margin = 40, 10
    canvas = drawing.Canvas(600, 420)
    canvas.box((margin, margin), SIZE * cell, SIZE * cell, drawing.INK)
    for row, column in np.ndindex(SIZE, SIZE):
        corner = (margin + column * cell + 1, margin + row * cell + 1)
        canvas.box(corner, cell - 2, cell - 2, "#293548")

    def thing(channel: Channel, x: float, y: float, width: float) -> None:
        side = channel.share * width
        corner = (x + (width - side) / 2, y + (width - side) / 2)
        canvas.box(corner, side, side, channel.colour, radius=side / 8)

    for number in sorted(range(len(channels)), key=lambda i: -channels[i].share):
        for row, column in np.argwhere(board[:, :, number]):
            x, y = margin + column * cell, margin + row * cell
            thing(channels[number], x, y, cell)
    for number, channel in enumerate(channels):
        top = 2 * margin + number * 36
        canvas.box((430, top), 26, 26, drawing.INK, radius=3)
        thing(channel, 430, top, 26)
        words = channel.name.replace("_", " ")
        canvas.text((468, top + 13), words, 15, anchor="lm")
    return canvas.pixels()
