"""Registry: finds parts, plug-ins, libraries and modules of the user by their names.

Belongs here: what turns a name in a recipe into code, and suggests names.
May import: `types` and `errors`.
"""

from rlcli.registry import parts as parts
from rlcli.registry.parts import CONTRACT as CONTRACT
from rlcli.registry.parts import KINDS as KINDS
from rlcli.registry.parts import RegisteredPart as RegisteredPart
from rlcli.registry.parts import entry_points as entry_points
from rlcli.registry.parts import find as find
from rlcli.registry.parts import is_plug_in as is_plug_in
from rlcli.registry.parts import names as names
from rlcli.registry.parts import parse_kind as parse_kind
from rlcli.registry.parts import register as register
from rlcli.registry.parts import register_class_adapter as register_class_adapter
from rlcli.registry.plugins import call_factory as call_factory
from rlcli.registry.plugins import options as options
from rlcli.registry.plugins import positional_parameters as positional_parameters
