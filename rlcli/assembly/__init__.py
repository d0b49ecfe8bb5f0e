"""Assembly: builds a `Setup` from a `Recipe`; the only package that knows all parts.

Belongs here: building environment, networks and agent; checks that parts fit together.
May import: recipe, loop, and every package of parts.

Scheduled options have no value before the program runs. `Setup.at` therefore builds
environment and agent for a given time, inside the compiled program. Factories are pure
and cheap; only a host environment is built once. `Setup.environment` and `Setup.agent`
are the parts at the start, which are checked once.
"""

from rlcli.assembly.data import record_data as record_data
from rlcli.assembly.make_environment import build_core as build_core
from rlcli.assembly.make_environment import build_environment as build_environment
from rlcli.assembly.make_environment import build_level_sampler as build_level_sampler
from rlcli.assembly.make_environment import check_environment as check_environment
from rlcli.assembly.make_environment import environment_factory as environment_factory
from rlcli.assembly.make_environment import group_size as group_size
from rlcli.assembly.preprocessing import (
    environment_preprocessing as environment_preprocessing,
)
from rlcli.assembly.setup import build as build
from rlcli.assembly.setup import build_together as build_together
