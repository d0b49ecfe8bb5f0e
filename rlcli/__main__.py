"""The command `rlcli`, also as `python -m rlcli`."""

import sys


def main() -> int:
    """Runs the command line of this process, and returns the exit code."""
    try:
        from rlcli.cli import main as run  # here: Ctrl-C may come as early
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130  # of `rlcli.errors`, which may not be imported either
    return run()


if __name__ == "__main__":
    sys.exit(main())
