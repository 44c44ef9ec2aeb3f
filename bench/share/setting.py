"""The common input of all parts, and how they store and print their figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.share.jobs import Job, Outcome, run

NAMES = 8
STEP_MS, EPOCHS = 100.0, 4
RUNS = 3


@dataclass(frozen=True)
class Setting:
    """The pictures, a folder with several names for each, a folder for files, a cache, and the number of runs."""

    pictures: Path
    folder: Path
    root: Path
    cache: Path
    runs: int = RUNS

    @classmethod
    def of(cls, pictures: Path, root: Path, runs: int = RUNS) -> Setting:
        """Make the folders; the cache has the seek indexes, and all files were read once."""
        made = cls(pictures, named(pictures, root / "pictures", NAMES), root, root / "cache", runs)
        run(made.folder, made.cache, [Job("own", epochs=1)])
        return made


def named(pictures: Path, target: Path, names: int) -> Path:
    """Give a folder in which each picture has several names."""
    for path in sorted(pictures.rglob("*")):
        if path.is_file():
            for number in range(names):
                name = target / f"{number}" / path.name
                name.parent.mkdir(parents=True, exist_ok=True)
                name.symlink_to(path.resolve())
    return target


def numbers(outcome: Outcome) -> dict[str, Any]:
    """Give an outcome in numbers."""
    found: dict[str, Any] = {"samples_per_second": outcome.samples_per_second, "seconds": outcome.seconds}
    if outcome.node:
        served = outcome.node["runs"][0]
        found |= {
            "produced_samples": served["produced_samples"],
            "read_bytes": served["engine"]["store"]["bytes"],
            "node_cpu_seconds": outcome.node_cpu_seconds,
        }
    return found


def say(what: str, found: dict[str, Any]) -> None:
    """Print some figures."""
    told = (f"{name} {value:.6g}" for name, value in found.items() if isinstance(value, (int, float)))
    print(f"{what:36}", "  ".join(told), flush=True)


def keep_best(found: dict[str, Any], name: str, new: dict[str, Any]) -> None:
    """Keep the run with the most samples per second, and of all runs the least processor time."""
    best = found.get(name)
    least = min(run["node_cpu_seconds"] for run in (new, best or new)) if "node_cpu_seconds" in new else None
    if best is None or new["samples_per_second"] > best["samples_per_second"]:
        found[name] = best = new
    if least is not None:
        best["node_cpu_seconds"] = least
