"""How objects are displayed: one line in a terminal, a small table in a notebook."""

from __future__ import annotations

import html
from abc import abstractmethod

Facts = dict[str, object]
"""The rows of a table: a value for each title."""


class Displayed:
    """An object with a one-line ``repr`` and a table in notebooks."""

    @abstractmethod
    def _facts(self) -> Facts:
        """Return the rows of the table."""

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        head = f"<tr><th colspan=2 style='text-align:left'>{_text(f'feedline.{type(self).__name__}')}</th></tr>"
        rows = (
            f"<tr><td style='text-align:left'>{_text(title)}</td><td style='text-align:left'>{_text(value)}</td></tr>"
            for title, value in self._facts().items()
        )
        return f"<table>{head}{''.join(rows)}</table>"


def count(number: int, what: str) -> str:
    """Return a number with its noun.

    >>> count(1, "sample"), count(60_000, "sample"), count(2, "class")
    ('1 sample', '60,000 samples', '2 classes')
    """
    ending = "" if number == 1 else "es" if what.endswith(("s", "ch")) else "s"
    return f"{number:,} {what}{ending}"


def listed(names: list[str], most: int = 8) -> str:
    """Return names as text, shortened to at most ``most`` of them.

    >>> listed(["a", "b", "c"], most=2)
    'a, b, ... 1 more'
    """
    more = f", ... {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _text(value: object) -> str:
    # Paths and class names come from the user and may contain markup.
    return html.escape(str(value))
