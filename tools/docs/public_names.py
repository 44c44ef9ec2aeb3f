"""The public names of the package, and what the documentation says about each.

In: the installed package and the pages of docs/reference. Out: for each name whether it has a docstring, a place in
the reference, and an example. Always true: an example counts only if it runs and uses the name. It stands on the page
that documents the name, or in the name's docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from page_examples import ROOT, blocks

MODULES = ("feedline", "feedline.ops", "feedline.errors", "feedline.testing", "feedline.telemetry", "feedline.torch")
REFERENCE = ROOT / "docs/reference"
DIRECTIVE = re.compile(r"^::: ([\w.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Name:
    """A public name, such as `feedline.Loader`, or a member of a class, such as `feedline.Loader.epoch`."""

    path: str
    value: Any

    @property
    def documented_as(self) -> str:
        """The name that has a place of its own in the reference: for a member its class."""
        module = max((name for name in MODULES if self.path.startswith(f"{name}.")), key=len)
        return f"{module}.{self.path.removeprefix(f'{module}.').split('.')[0]}"

    @property
    def is_member(self) -> bool:
        """Whether it belongs to a class."""
        return self.path != self.documented_as


def public_names() -> list[Name]:
    """Give every public name once, members of classes included."""
    found: dict[int, Name] = {}
    for module_name in MODULES[1:] + MODULES[:1]:
        module = importlib.import_module(module_name)
        for name, value in exported(module):
            if id(value) not in found:
                found[id(value)] = Name(f"{module_name}.{name}", value)
    return sorted([*found.values(), *members(found.values())], key=lambda name: name.path)


def exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Give what a module offers: its `__all__`, or the classes and functions that it defines."""
    for name in getattr(module, "__all__", vars(module)):
        value = getattr(module, name)
        is_own = getattr(value, "__module__", "").startswith("feedline")
        is_listed = hasattr(module, "__all__") or value.__module__ == module.__name__ if is_own else False
        if not name.startswith("_") and is_listed and (inspect.isclass(value) or callable(value)):
            yield name, value


def members(names: Any) -> Iterator[Name]:
    """Give the public methods and properties that classes define."""
    for name in names:
        if inspect.isclass(name.value):
            for member, value in vars(name.value).items():
                is_code = isinstance(value, (property, classmethod, staticmethod, FunctionType))
                if is_code and not member.startswith("_"):
                    yield Name(f"{name.path}.{member}", value)


def has_docstring(name: Name) -> bool:
    """Say whether somebody wrote a docstring; one that is inherited or made by a dataclass does not count."""
    value = name.value.__func__ if isinstance(name.value, (classmethod, staticmethod)) else name.value
    text = (value.fget if isinstance(value, property) else value).__doc__ or ""
    return bool(text) and not text.startswith(f"{name.path.rsplit('.', 1)[1]}(")


def documented() -> dict[str, Path]:
    """Give the page of each name that the reference documents."""
    return {name: page for page in REFERENCE.glob("*.md") for name in DIRECTIVE.findall(page.read_text())}


def has_example(name: Name, pages: dict[str, Path]) -> bool:
    """Say whether an example that runs uses the name."""
    page = pages.get(name.documented_as)
    codes = [block.code for block in blocks(page.read_text()) if block.is_run] if page else []
    shown = inspect.getdoc(name.value) or ""
    codes += [line for line in shown.splitlines() if line.lstrip().startswith(">>>")]
    last = re.escape(name.path.rsplit(".", 1)[1])
    use = rf"\.{last}\b" if name.is_member else rf"\b{last}\b"
    return any(re.search(use, code) for code in codes)
