"""Draws the bars of a race as SVG, legible on light and on dark pages.

In: results by name. Out: the text of an SVG. A bar ends at the best run; the mark in it is the slowest. Pale bars are
of runs that other programs disturbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from bench.peers import libjpeg_turbo
from bench.peers.contenders import ALL, OURS
from bench.peers.ratios import is_disturbed

WIDTH, LABELS, FIGURES, ROW, BAR, TOP = 900, 290, 60, 24, 16, 34
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.ours { fill: #0969da } .peer { fill: #8c959f } .reference { fill: #bf8700 }
.slowest { stroke: #ffffff; stroke-width: 2 } .disturbed { opacity: 0.4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ours { fill: #58a6ff } .peer { fill: #6e7681 } .reference { fill: #d29922 }
  .slowest { stroke: #0d1117 }
}"""


def _kind(name: str) -> str:
    peer = ALL[name]
    return "ours" if peer in OURS else "reference" if peer is libjpeg_turbo.ALONE else "peer"


def _classes(name: str, result: Mapping[str, Any]) -> str:
    return f"{_kind(name)} disturbed" if is_disturbed(result) else _kind(name)


def bars(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One bar per contender, fastest first."""
    is_any_disturbed = any(map(is_disturbed, results.values()))
    caption = "images/s, best run; the mark is the slowest" + ("; pale: disturbed" if is_any_disturbed else "")
    ranking = sorted(results, key=lambda name: -results[name]["samples_per_second"])
    scale = (WIDTH - LABELS - FIGURES) / results[ranking[0]]["samples_per_second"]
    height = TOP + ROW * len(ranking) + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<style>\n{STYLE}\n</style>",
        f'<text x="{LABELS}" y="18">{caption}</text>',
    ]
    for row, name in enumerate(ranking):
        best, slowest = results[name]["samples_per_second"], results[name]["slowest_run"]
        top, end = TOP + ROW * row, LABELS + best * scale
        base = top + BAR - 3
        classes = _classes(name, results[name])
        mark = LABELS + slowest * scale
        lines += [
            f'<text x="{LABELS - 8}" y="{base}" text-anchor="end">{escape(ALL[name].title)}</text>',
            f'<rect class="{classes}" x="{LABELS}" y="{top}" width="{best * scale:.1f}" height="{BAR}" rx="2"/>',
            f'<line class="slowest" x1="{mark:.1f}" x2="{mark:.1f}" y1="{top + 3}" y2="{top + BAR - 3}"/>',
            f'<text x="{end + 6:.1f}" y="{base}">{best:.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
