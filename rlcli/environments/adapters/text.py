"""Text: members of observations without a fixed shape, dropped or kept as token ids.

MiniGrid and BabyAI describe the task of an episode in words.
"""

import functools
import re
import sys
import zlib
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import WrapperSpec
from gymnasium.utils import RecordConstructorArgs

TextMode = Literal["drop", "tokens"]
MAX_TOKENS = 32  # words of a text; more are cut off
VOCABULARY = 512  # ids of words; 0 is no word
# With this value the words of MiniGrid and BabyAI have distinct ids.
_HASH_START = 18


def encode(text: str) -> np.ndarray:
    """The ids of the words of a text, `[MAX_TOKENS]` int64, padded with 0.

    The id of a word is 1 + its CRC-32 modulo `VOCABULARY` − 1, so it needs no list of
    words. Rare words may share an id.
    """
    words = re.findall(r"\w+", text.lower())[:MAX_TOKENS]
    ids = np.zeros(MAX_TOKENS, np.int64)
    for place, word in enumerate(words):
        ids[place] = 1 + zlib.crc32(word.encode(), _HASH_START) % (VOCABULARY - 1)
    return ids


class TokenObservation(RecordConstructorArgs, gymnasium.ObservationWrapper):
    """Replaces texts in a Dict by the ids of their words."""

    def __init__(self, env: gymnasium.Env, names: list[str]) -> None:
        RecordConstructorArgs.__init__(self, names=names)  # for processes of others
        gymnasium.ObservationWrapper.__init__(self, env)
        self.names = names
        sizes = np.full(MAX_TOKENS, VOCABULARY)
        tokens = {name: spaces.MultiDiscrete(sizes) for name in names}
        members: Any = env.observation_space
        self.observation_space = spaces.Dict({**members.spaces, **tokens})

    def observation(self, observation: Any) -> dict[str, Any]:
        """The observation with ids instead of texts."""
        tokens = {name: encode(observation[name]) for name in self.names}
        return {**observation, **tokens}


def fix_shapes(
    name: str, space: gymnasium.Space, text: TextMode
) -> tuple[WrapperSpec, ...]:
    """The wrappers after which every member of a Dict has a fixed shape.

    With `tokens`, texts become the ids of their words. All other members without a
    fixed shape are dropped, with a note.
    """
    members = space.spaces if isinstance(space, spaces.Dict) else {}
    nested = spaces.Dict | spaces.Tuple
    shapeless = [
        key
        for key, member in members.items()
        if member.shape is None and not isinstance(member, nested)
    ]
    texts = [key for key in shapeless if getattr(members[key].dtype, "kind", "") == "U"]
    tokens = texts if text == "tokens" else []
    dropped = [key for key in shapeless if key not in tokens]
    wrappers = []
    if tokens:
        path = f"{__name__}:{TokenObservation.__name__}"
        wrappers.append(WrapperSpec("TokenObservation", path, {"names": tokens}))
    kept = [key for key in members if key not in dropped]
    if dropped and kept:
        _note_dropped(name, tuple(dropped), has_text=bool(texts) and not tokens)
        path = "gymnasium.wrappers:FilterObservation"
        wrappers.append(WrapperSpec("FilterObservation", path, {"filter_keys": kept}))
    return tuple(wrappers)


@functools.cache
def _note_dropped(name: str, members: tuple[str, ...], *, has_text: bool) -> None:
    names = ", ".join(f"`{member}`" for member in members)
    hint = "; `text: tokens` keeps texts as ids of words" if has_text else ""
    print(
        f"note: {name}: dropped for want of a fixed shape: {names}{hint}",
        file=sys.stderr,
    )
