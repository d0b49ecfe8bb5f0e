"""Assembly: from a `Recipe` to a `Setup`; alone knows all kinds of parts.

Belongs here: building environment, networks and agent, and refusing what does not fit.
May import: recipe, loop, and every package of parts.

Nothing a recipe says may be scheduled is a number before the program runs: `parts`
makes environment and agent as they are at a given time, inside the compiled program.
The factories are pure and cheap; only a host environment is made once.
"""

from rlcli.assembly.setup import build as build
from rlcli.assembly.setup import build_environment as build_environment
from rlcli.assembly.setup import check_environment as check_environment
