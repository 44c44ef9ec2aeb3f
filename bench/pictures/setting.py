"""The input of all rows: where files are, how often contenders run, and what failed.

Each run is a process of its own, in turn with the others, by `bench.harness`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import harness
from bench.peers.venvs import NotInstallable
from bench.pictures.contenders import PREFIX, environment

WORK = Path("bench-work/pictures")
QUICK_SHARE = 100
"""A quick run has this many times fewer samples where the number of samples is free."""

Results = dict[str, dict[str, Any]]


@dataclass
class Setting:
    """The pictures, the folder for files, and the length of runs."""

    pictures: Path
    work: Path = WORK
    runs: int = 3
    is_quick: bool = False
    wait_seconds: float = harness.QUIET_WAIT_SECONDS
    has_peers: bool = True
    """Whether contenders take part that have an environment of their own."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why a contender is missing from a row, by `row, contender`."""

    def samples(self, count: int) -> int:
        """The number of samples of a row that is free to choose it."""
        return count // QUICK_SHARE if self.is_quick else count

    def race(self, row: str, contenders: list[str], arguments: list[str]) -> Results:
        """Run contenders in turn, and keep the best run of each. Those that fail are named and leave the row."""
        pythons, failures = self._pythons(row, contenders), dict[str, str]()
        os.environ["FEEDLINE_CACHE"] = str(self.work / "cache")
        found = harness.race(
            [PREFIX + name for name in pythons],
            arguments,
            self.runs,
            {PREFIX + name: python for name, python in pythons.items()},
            failures,
            self.wait_seconds,
        )
        self.failures.update({f"{row}, {name.removeprefix(PREFIX)}": why for name, why in failures.items()})
        return {name.removeprefix(PREFIX): result for name, result in found.items()}

    def ask(self, row: str, contender: str, arguments: list[str]) -> dict[str, Any] | None:
        """Run a contender once and return its answer. None if it fails."""
        pythons = self._pythons(row, [contender])
        try:
            return harness.run_contender(PREFIX + contender, arguments, pythons[contender]) if pythons else None
        except harness.ContenderFailed as failure:
            self.failures[f"{row}, {contender}"] = str(failure)
            return None

    def _pythons(self, row: str, contenders: list[str]) -> dict[str, str]:
        found = {}
        for name in contenders:
            own = environment(name)
            if own is not None and not self.has_peers:
                continue
            try:
                found[name] = own.python() if own else sys.executable
            except NotInstallable as error:
                self.failures[f"{row}, {name}"] = f"not installable: {error}"
        return found
