"""Training: the verbs that make runs and go on with them, and the experiment in one."""

from rlcli.training.verbs import Chunk as Chunk
from rlcli.training.verbs import chunks as chunks
from rlcli.training.verbs import resume as resume
from rlcli.training.verbs import train as train
