"""`python -m rlcli`: the same as the command `rlcli`."""

import sys

from rlcli.cli import main

if __name__ == "__main__":
    sys.exit(main())
