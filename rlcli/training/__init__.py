"""Training: trains runs, and resumes them.

Belongs here: train, resume, the session and the run loop; parts of them in folders.
May import: evaluation, monitor, and everything below them.
"""

from rlcli.training.hook import Chunk as Chunk
from rlcli.training.hook import Hook as Hook
from rlcli.training.new_run import chunks as chunks
from rlcli.training.new_run import train as train
from rlcli.training.resuming import resume as resume
