"""Monitor: how a run is watched: a live panel in a terminal, lines elsewhere."""

from rlcli.monitor.monitors import Monitor as Monitor
from rlcli.monitor.monitors import TrainMonitor as TrainMonitor
