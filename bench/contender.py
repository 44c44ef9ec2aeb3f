"""Runs one contender of a benchmark: `python -m bench.contender NAME ARGUMENTS`."""

from __future__ import annotations

import sys

from bench import arrays
from bench.peers.contenders import CONTENDERS
from bench.pictures import contenders as pictures
from bench.schedule import uniform
from bench.share import disk
from bench.volumes import contenders as volumes


def main() -> None:
    name, *arguments = sys.argv[1:]
    contenders = {
        **CONTENDERS,
        **arrays.CONTENDERS,
        **volumes.CONTENDERS,
        **uniform.CONTENDERS,
        **disk.CONTENDERS,
        **pictures.CONTENDERS,
    }
    contenders[name](*arguments)


if __name__ == "__main__":
    main()
