"""The table of the zoo: one line per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning.table import number

HEAD = """# Zoo

Trained policies that come with rlcli, one for each recipe for classic control and
MinAtar; of a recipe and its longer version, such as `ppo_breakout_10m`, for the latter.
These commands and `rlcli.load` take their names, before any training:

```sh
rlcli eval zoo/ppo_cartpole
rlcli render zoo/ppo_cartpole
rlcli show zoo/ppo_cartpole
rlcli export zoo/ppo_cartpole --format numpy
```

```python
import rlcli

policy = rlcli.load("zoo/ppo_cartpole")
```

The other commands need a run, with metrics and checkpoints, which these policies do not
have. A file or folder of the same name in the current directory takes precedence.

The files are [policy files](formats.md#checkpoint-and-policy-files) of a single seed,
in the folder `recipes/zoo`. Policies of more than 200 kB are stored in half
precision, and compute in float32. Of a population only the best member is kept.

Each policy is the latest of the best of several seeds, chosen by 100 greedy episodes.
The return is the mean of 100 other greedy episodes, measured with the file itself, with
its 95 % bootstrap interval over these episodes: it describes this policy. What a recipe
reaches over seeds is in [learning.md](learning.md).

`make zoo` trains the policies that are missing. `python -m benchmarks.zoo ppo_cartpole`
makes one of them, and `python -m benchmarks.zoo --measure ppo_cartpole` evaluates its
file again.

| policy | return | interval | kB | trained by | SHA-256 |
|---|---|---|---|---|---|
"""


def page(names: Sequence[str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the whole document."""
    lines = [line(name, results[name]) for name in names if name in results]
    missing = [f"`{name}`" for name in names if name not in results]
    text = HEAD + "".join(f"{text}\n" for text in lines)
    if missing:
        text += f"\nNot made yet: {', '.join(missing)}.\n"
    return text


def line(name: str, result: Mapping[str, Any]) -> str:
    """Returns one line of the table."""
    low, high = map(number, result["ci95"])
    cells = (
        f"`zoo/{name}`",
        number(result["mean"]),
        f"{low} … {high}",
        f"{result['bytes'] / 1000:.0f}",
        f"`{result['command']}`",
        f"`{result['sha256']}`",
    )
    return f"| {' | '.join(cells)} |"
