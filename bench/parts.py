"""A benchmark in parts. Each part can be measured again alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench import harness
from bench.ratio import Ratio


def measure(
    result: str,
    parts: Mapping[str, Callable[[], Any]],
    only: Sequence[str] | None,
    ratios: Callable[[dict[str, Any]], Iterable[Ratio]],
    setup: Mapping[str, Any] | None = None,
) -> None:
    """Measure all parts, or `only` some; write what is there after each one, and print the figures at the end."""
    path = harness.RESULTS / result
    results: dict[str, Any] = json.loads(path.read_text())["results"] if only and path.exists() else {}
    reached: list[Ratio] = []
    for part in only or parts:
        results[part] = parts[part]()
        reached = [ratio for ratio in ratios(results) if ratio.value is not None]
        found = {ratio.name: ratio.value for ratio in reached}
        document = {"setup": {**harness.setup(), **(setup or {})}, "ratios": found, "results": results}
        path.write_text(json.dumps(document, indent=1) + "\n")
    for ratio in reached:
        print(f"{ratio.name:90} {ratio.value:.3f} {ratio.verdict}")
    print(f"written to {path}")
