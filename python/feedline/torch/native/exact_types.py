"""Recognises objects whose code is torch's or torchvision's own.

In: a transform or a dataset. Out: where its class comes from, and whether the object replaces a method of it.
Only exact types count: a subclass may do anything. Modules are looked up in ``sys.modules`` and never imported, because
an object of a module that was not imported cannot exist.
"""

from __future__ import annotations

import sys
from typing import Any


def is_exactly(value: object, module: str, name: str) -> bool:
    """Return whether ``value`` is an object of the class ``name`` of a module, and not of a subclass."""
    owner = sys.modules.get(module)
    return owner is not None and type(value) is getattr(owner, name, None)


def base_among(value: object, module: str, names: tuple[str, ...]) -> str | None:
    """Return the first of the named classes of a module from which the class of ``value`` derives."""
    owner = sys.modules.get(module)
    kinds = {name: getattr(owner, name, None) for name in names} if owner is not None else {}
    return next((name for name, kind in kinds.items() if isinstance(kind, type) and isinstance(value, kind)), None)


def replaced_method(value: Any) -> str | None:
    """Return the name of a method that the object replaces by an attribute of its own, or of a hook that it has."""
    attributes = getattr(value, "__dict__", {})
    for name, content in attributes.items():
        if name in ("_forward_hooks", "_forward_pre_hooks") and content:
            return str(name)
        # torch looks for the optional method __getitems__ on the object, although its class has none.
        if callable(content) and (name.startswith("__") or callable(getattr(type(value), name, None))):
            return str(name)
    return None
