"""An extension of griffe: docstrings as the site shows them.

In: docstrings with roles of Sphinx (`:class:`) and examples that begin with `>>>`, as `help()` and doctest expect them.
Out: the same docstrings in Markdown: links to the reference and blocks of code. The package itself is not changed.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?P<role>class|func|exc|meth|attr):`(?P<name>[\w.]+)`")
EXAMPLE = re.compile(r"(?:^ *>>>.*\n(?:^ *\S.*\n?)*)+", re.MULTILINE)


def to_markdown(text: str, module: str, owner: str) -> str:
    """Give a docstring in Markdown; bare names belong to the module, those of methods to the class that owns it."""

    def link(match: re.Match[str]) -> str:
        name = match["name"]
        if name.startswith("feedline."):
            return f"[`{name.rsplit('.', 1)[1]}`][{name}]"
        return f"[`{name}`][{owner if match['role'] in ('meth', 'attr') else module}.{name}]"

    def block(match: re.Match[str]) -> str:
        return f"```pycon\n{textwrap.dedent(match[0]).rstrip()}\n```\n"

    return EXAMPLE.sub(block, ROLE.sub(link, text + "\n")).rstrip("\n")


class Docstrings(Extension):
    """Turns every docstring of the package into Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that griffe has read."""
        if obj.docstring is not None and obj.path.startswith("feedline"):
            owner = obj if obj.is_class or obj.parent is None else obj.parent
            obj.docstring.value = to_markdown(obj.docstring.value, obj.module.path, owner.path)
