"""Monitor: shows the progress of a run as a live panel or as lines of text.

Belongs here: panel, lines, `watch`, and `train_monitor` for custom training loops.
May import: the modules of `runs` that import no JAX, and the ground.
"""

from rlcli.monitor.monitors import Monitor as Monitor
from rlcli.monitor.monitors import can_show_panel as can_show_panel
