"""Recipe: reads YAML into a validated `Recipe` with every default filled in.

Belongs here: reading, merging, validating and writing recipes; the catalog of parts.
May import: `replays.datasets.names`, and the ground. Builds nothing.

`documents` parses YAML with line numbers, `finding` finds files by name, `extending`
merges a recipe with its bases, and `settings` with `--set`. `merging` defines how an
option changes a part, and `reading` reads each recipe once. `annotations` validates
single values, `grammar` and `sections` define the sections, and `loading` assembles the
`Recipe`.
"""

from rlcli.recipe.extending import shipped_recipes as shipped_recipes
from rlcli.recipe.finding import find_recipe as find_recipe
from rlcli.recipe.finding import locate_recipe as locate_recipe
from rlcli.recipe.grammar import Part as Part
from rlcli.recipe.loading import Recipe as Recipe
from rlcli.recipe.loading import check_document as check_document
from rlcli.recipe.loading import dump_recipe as dump_recipe
from rlcli.recipe.loading import load_bases as load_bases
from rlcli.recipe.loading import load_recipe as load_recipe
from rlcli.recipe.loading import load_to_train as load_to_train
from rlcli.recipe.loading import resolve as resolve
from rlcli.recipe.merging import DEFAULT as DEFAULT
from rlcli.recipe.merging import SHARED as SHARED
from rlcli.recipe.reading import AnyRecipe as AnyRecipe
from rlcli.recipe.reading import RecipeDocument as RecipeDocument
from rlcli.recipe.reading import read_recipe as read_recipe
from rlcli.recipe.reading import read_without_parts as read_without_parts
from rlcli.recipe.sections import NetworkSpec as NetworkSpec
from rlcli.recipe.settings import init_settings as init_settings
from rlcli.recipe.settings import seed_settings as seed_settings
