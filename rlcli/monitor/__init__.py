"""Monitor: what a terminal shows of a run: a live panel, or plain lines.

Belongs here: panel, lines, and `TrainMonitor` for training loops of one's own.
May import: `runs.metrics`, `runs.statistics`, and the ground.
"""

from rlcli.monitor.monitors import Monitor as Monitor
from rlcli.monitor.monitors import TrainMonitor as TrainMonitor
