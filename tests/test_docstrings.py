"""Every public name is documented with an example, and the examples run."""

from __future__ import annotations

import doctest
import inspect
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import batch_log, display, epoch_sampler, ops, telemetry, testing
from feedline import types as shapes

MODULES = (fl, ops, telemetry, testing)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def exported(module: types.ModuleType) -> list[str]:
    """Give the names that a module offers."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def public() -> Iterator[tuple[str, Any]]:
    """Give every public function, class and method."""
    for module in MODULES:
        for name in exported(module):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) or inspect.isbuiltin(value):
                continue
            yield f"{module.__name__}.{name}", value
            for attribute, member in vars(value).items() if inspect.isclass(value) else ():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if not attribute.startswith("_") and inspect.isfunction(function):
                    yield f"{module.__name__}.{name}.{attribute}", function


PUBLIC = dict(public())


def test_every_public_name_has_a_docstring_with_an_example() -> None:
    assert len(PUBLIC) > 100
    assert [name for name, value in PUBLIC.items() if ">>> " not in (value.__doc__ or "")] == []


def test_every_shape_of_plain_data_is_documented() -> None:
    classes = [getattr(shapes, name) for name in shapes.__all__ if inspect.isclass(getattr(shapes, name))]
    assert len(classes) > 10
    assert [shape.__name__ for shape in classes if not shape.__doc__] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_a_docstring_run(name: str) -> None:
    value = PUBLIC[name]
    module = inspect.getmodule(value) or fl
    names = {**vars(module), "fl": fl, "ops": ops, "np": np, "testing": testing}
    docs = inspect.getdoc(value) or ""
    test = doctest.DocTestParser().get_doctest(docs, names, name, None, None)
    told: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert failed == 0, "".join(told)
    assert tried == len(test.examples) or "+SKIP" in docs


@pytest.mark.parametrize("module", [batch_log, display, epoch_sampler], ids=lambda module: module.__name__)
def test_the_examples_of_internal_helpers_run(module: types.ModuleType) -> None:
    names = {**vars(module), "fl": fl, "ops": ops, "np": np}
    for test in doctest.DocTestFinder().find(module, module.__name__, extraglobs=names):
        told: list[str] = []
        failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
        assert failed == 0, "".join(told)
