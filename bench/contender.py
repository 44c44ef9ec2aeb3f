"""Runs one contender of a benchmark: `python -m bench.contender NAME ARGUMENTS`."""

from __future__ import annotations

import sys

from bench import arrays, pictures
from bench.peers.contenders import CONTENDERS


def main() -> None:
    name, *arguments = sys.argv[1:]
    contenders = {**CONTENDERS, **pictures.CONTENDERS, **arrays.CONTENDERS}
    contenders[name](*arguments)


if __name__ == "__main__":
    main()
