"""Replays: buffers of past steps and their sampling.

Belongs here: ring buffers, windows, priorities, data sets; the part `replay`.
May import: the ground.

An agent requests `tracer.window + updater.traits.sequence_length − 1` consecutive steps
from a replay; no window crosses the write position of the ring. Online agents keep the
last `window − 1` steps before the unroll; rows from before the first unroll have weight
0. A replay may return longer sequences; its `window` says how many steps it needs
before it can return any. A tracer with `window` None reads whole episodes and needs a
replay with `episodes`. Such a replay may have no finished episode: if a whole sample
has weight 0, the update is skipped, but counted. A tracer that looks further ahead than
a loss adds an `advantage` to the extras (V-trace).

Replays combine a ring (of steps or frames), windows on the ring, and a sampling
distribution (uniform or by priority): three files that do not import each other. An
updater reports `priority` as `[B]`, or `[T, B]` for a replay that mixes rows itself.
"""
