"""Draws the use of workers and accelerators over time as SVG, legible on light and on dark pages.

In: for each loader the shares of `trace`. Out: the text of an SVG, a panel for each loader, one below the other on
one axis of time, so that what is shorter took less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from bench.schedule.trace import INTERVAL_SECONDS

PATH = Path(__file__).parent.parent.parent / "docs/images/kits19-use.svg"
WIDTH, LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 900, 76, 16, 34, 130, 40, 44
TICK_SECONDS = 5
LINES = {"workers": "workers: time inside ops", "accelerators": "accelerator: time in steps"}
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
path { fill: none; stroke-width: 1.8; stroke-linejoin: round } .grid { stroke: #8c959f; stroke-opacity: 0.35 }
.workers { stroke: #bf8700 } .accelerators { stroke: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .grid { stroke: #6e7681; stroke-opacity: 0.5 }
  .workers { stroke: #d29922 } .accelerators { stroke: #58a6ff }
}"""

Traces = Mapping[str, Mapping[str, Sequence[float]]]


def use(traces: Traces) -> str:
    """Draw a panel for each loader."""
    seconds = INTERVAL_SECONDS * max(len(shares) for trace in traces.values() for shares in trace.values())
    per_second = (WIDTH - LEFT - RIGHT) / seconds
    height = TOP + len(traces) * (PANEL + GAP) + BOTTOM - GAP
    description = "Use of workers and accelerator over one epoch of KiTS19-like volumes"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'aria-label="{description}">',
        f"<style>\n{STYLE}\n</style>",
    ]
    for place, (name, text) in enumerate(LINES.items()):
        x = LEFT + 260 * place + 240
        lines.append(f'<path class="{name}" d="M{x} 14h28"/><text x="{x + 36}" y="18">{text}</text>')
    for place, (title, trace) in enumerate(traces.items()):
        lines += _panel(title, trace, TOP + place * (PANEL + GAP), per_second)
    base = height - BOTTOM + 18
    for tick in range(0, int(seconds) + 1, TICK_SECONDS):
        lines.append(f'<text x="{LEFT + tick * per_second:.1f}" y="{base}" text-anchor="middle">{tick}</text>')
    lines.append(f'<text x="{(WIDTH + LEFT - RIGHT) / 2}" y="{base + 18}" text-anchor="middle">seconds</text>')
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, trace: Mapping[str, Sequence[float]], top: int, per_second: float) -> list[str]:
    lines = [f'<text class="title" x="{LEFT}" y="{top - 8}">{escape(title)}</text>']
    middle = top + PANEL // 2
    lines.append(f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">busy</text>')
    for percent in (0, 50, 100):
        y = top + PANEL * (1 - percent / 100)
        lines.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for name in LINES:
        points = (
            f"{LEFT + (place + 0.5) * INTERVAL_SECONDS * per_second:.1f} {top + PANEL * (1 - min(1.0, share)):.1f}"
            for place, share in enumerate(trace[name])
        )
        lines.append(f'<path class="{name}" d="M{"L".join(points)}"/>')
    return lines
