"""The ``feedline`` command."""

import os
import signal
import sys

from feedline._feedline import run_cli


def main() -> int:
    """Run the command line; give its exit code. Functions that plans name may lie in the current folder."""
    # To be told to end is to be interrupted: servers then leave nothing behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.path.append(os.getcwd())
    return run_cli(["feedline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
