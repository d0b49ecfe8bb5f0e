"""Recipe: from YAML to a validated `Recipe`, with every default filled in.

Belongs here: reading, merging, validating and writing recipes; the catalog of parts.
May import: the ground, and the options of `networks.heads`. Builds nothing.

`documents` reads text with places, `annotations` says what a value may be, `grammar`
and `sections` what a recipe may hold, and `loading` makes a `Recipe` of it.
"""

from rlcli.recipe.loading import Recipe as Recipe
from rlcli.recipe.loading import dump as dump
from rlcli.recipe.loading import find as find
from rlcli.recipe.loading import load as load
from rlcli.recipe.loading import resolved as resolved
from rlcli.recipe.loading import shipped as shipped
from rlcli.recipe.sections import DEFAULT as DEFAULT
from rlcli.recipe.sections import SHARED as SHARED
from rlcli.recipe.sections import NetworkSpec as NetworkSpec
from rlcli.recipe.sections import Part as Part
