"""Monitor: shows the progress of a run as a live panel or as lines of text.

Belongs here: panel, lines, and `TrainMonitor` for custom training loops.
May import: `runs.metrics`, `runs.statistics`, and the top-level modules.
"""

from rlcli.monitor.monitors import Monitor as Monitor
from rlcli.monitor.monitors import TrainMonitor as TrainMonitor
