"""What the race knows of one contender.

In: a peer's own file. Out: its interpreter, its converted files, its window as a result. Nothing here imports a peer:
each is imported by its own `contend` and `convert`, in its own environment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from bench import harness
from bench.harness import Window
from bench.peers.venvs import Environment
from bench.pipeline import Task


@dataclass(frozen=True)
class Peer:
    """One contender: what it is called, what it needs, what it does differently, how it runs."""

    name: str
    title: str
    differs: str
    contend: Callable[[Task], Window]
    environment: Environment | None = None
    convert: Callable[[Task], None] | None = None
    writes_every_epoch: bool = False
    packages: tuple[str, ...] = ()

    def run(self, *arguments: str) -> None:
        """Runs in the contender's process: contends and reports."""
        packages = self.environment.packages if self.environment else self.packages
        versions = {package: version(package) for package in packages}
        harness.report(self.contend(Task.of(*arguments).within(self.name)), versions=versions)

    def run_convert(self, *arguments: str) -> None:
        """Runs in the contender's process: makes its files in the work folder."""
        if self.convert is not None:
            self.convert(Task.of(*arguments).within(self.name))
