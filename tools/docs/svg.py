"""The parts of the documentation's pictures: boxes, text, arrows, colours for light and dark pages.

In: shapes in a coordinate system of 640 units width. Out: the text of an SVG file. Always true: colours are classes,
which a style sheet inside the file sets for light and for dark pages, so a picture follows the page that shows it.
"""

from __future__ import annotations

from html import escape

WIDTH = 640
STYLE = """\
text{font:15px system-ui,sans-serif;fill:#1d2636}.small{font-size:13px;fill:#51607a}.head{font-weight:600}
.mono{font-family:ui-monospace,monospace;font-size:13px}
.box{fill:#f4f6fa;stroke:#5b6b86}.main{fill:#1f6fb5}.soft{fill:#bcd9f2}.peer{fill:#a3acba}.warm{fill:#d9822b}
.red{fill:#b5472f}.green{fill:#1d7a46}
.none{fill:none;stroke:#5b6b86}.grid{fill:#e4e9f1;stroke:#fff}.line{fill:none;stroke:#5b6b86;stroke-width:1.5}
.crop{fill:none;stroke:#b5472f;stroke-width:2.5}.on{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e6ecf7}.small{fill:#a9b8d3}
.box{fill:#1c2433;stroke:#8fa3c7}.main{fill:#4f9fe0}.soft{fill:#2f6697}.peer{fill:#67748a}.warm{fill:#e79a4b}
.red{fill:#e2735a}.green{fill:#3fa36b}
.none{stroke:#8fa3c7}.grid{fill:#2a3446;stroke:#121a26}.line{stroke:#8fa3c7}.crop{stroke:#ff8a70}.on{fill:#0d1420}}"""


class Picture:
    """A picture to which shapes are added."""

    def __init__(self, height: float, title: str) -> None:
        """Begin a picture. Screen readers read `title`."""
        self._height, self._title = height, title
        self._shapes: list[str] = []

    def text(self, x: float, y: float, words: str, *classes: str, anchor: str = "start") -> None:
        """Add a line of text; `y` is its base line."""
        kind = f' class="{" ".join(classes)}"' if classes else ""
        self._shapes.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 3) -> None:
        """Add a rectangle."""
        size = f'width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self._shapes.append(f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" {size}/>')

    def card(self, x: float, y: float, width: float, head: str, *lines: str) -> None:
        """Add a box with a heading and lines of small text."""
        self.box(x, y, width, 34 + 18 * len(lines), "box", 6)
        self.text(x + 12, y + 23, head, "head")
        for number, line in enumerate(lines):
            self.text(x + 12, y + 43 + 18 * number, line, "small")

    def path(self, data: str, kind: str = "line", *, has_arrow: bool = False) -> None:
        """Add a path, with an arrow at its end if it has one."""
        arrow = ' marker-end="url(#a)"' if has_arrow else ""
        self._shapes.append(f'<path class="{kind}" d="{data}"{arrow}/>')

    def __str__(self) -> str:
        """Give the file's text."""
        size = f'viewBox="0 0 {WIDTH} {self._height:g}" width="{WIDTH}"'
        label = escape(self._title, quote=True)
        arrow = '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
                f"<style>{STYLE}</style>",
                f'<defs>{arrow}<path class="peer" d="M0 0L8 4L0 8z"/></marker></defs>',
                *self._shapes,
                "</svg>",
                "",
            ]
        )
