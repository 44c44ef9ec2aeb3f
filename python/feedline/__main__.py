"""The ``feedline`` command."""

import sys

from feedline._feedline import run_cli


def main() -> int:
    """Run the command line; give its exit code."""
    return run_cli(["feedline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
