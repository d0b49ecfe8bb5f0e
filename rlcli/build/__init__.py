"""Build: from a recipe to an environment and an agent. Alone knows all kinds of parts.

Nothing a recipe says may be scheduled is a number before the program runs: `parts`
makes environment and agent as they are at a given time, inside the compiled program.
The factories are pure and cheap; only a host environment is made once.
"""

from rlcli.build.setup import build as build
from rlcli.build.setup import check_environment as check_environment
from rlcli.build.setup import environment_of as environment_of
