"""Laws 1 and 3: no stream of the table in ``streams.py`` changes by one byte, and the table covers the public API."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from stream_inputs import Inputs
from streams import CASES, committed, difference, input_digests, measured

import feedline as fl
from feedline import loader as loader_module
from feedline import ops

OPS = [getattr(ops, name) for name in ops.__all__ if name != "Op"]
SOURCES = [name for name in fl.__all__ if getattr(getattr(fl, name), "__module__", "") == "feedline.source"]
POLICIES = (
    fl.Arrival, fl.Cache, fl.ClassBalanced, fl.Planned, fl.Reservoir, fl.Share, fl.Substitute, fl.Tuning, fl.Weighted,
)  # fmt: skip
"""Classes of the public API whose objects are options of a loader."""

NOT_COVERED = {"mesh": "it needs a process group of torch, and only says rank and world_size"}
"""Options of a loader without a case."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    inputs = Inputs(tmp_path_factory.mktemp("inputs"))
    yield inputs
    inputs.close()


def test_the_inputs_are_the_committed_ones(inputs: Inputs) -> None:
    assert input_digests(inputs) == committed("inputs"), "synth writes other pictures; no stream can be compared"


@pytest.mark.parametrize("name", CASES)
def test_law_1_and_3_a_stream_is_the_committed_one(inputs: Inputs, name: str) -> None:
    expected = committed().get(name)
    assert expected, f"case {name!r} has no committed digests: python tests/streams.py --write {name}"
    problem = difference(name, measured(name, inputs), expected)
    assert problem is None, problem


def test_every_committed_digest_has_a_case() -> None:
    assert sorted(committed()) == sorted(CASES)


def test_law_1_and_3_ways_to_run_do_not_change_the_committed_stream() -> None:
    digests = committed()
    pairs = [(name, case.like) for name, case in CASES.items() if case.like is not None]
    assert pairs
    for name, like in pairs:
        for part in ("stream", "resumed"):
            assert digests[name][part] == digests[like][part], f"the {part} of {name!r} is not that of {like!r}"


def test_different_plans_have_different_streams() -> None:
    digests = committed()
    names = [name for name, case in CASES.items() if case.like is None and not case.resumed_with]
    streams = [digests[name]["stream"] for name in names]
    same = [name for name, digest in zip(names, streams, strict=True) if streams.count(digest) > 1]
    assert same == [], "give these cases like=..., or make them differ"


@dataclasses.dataclass
class Seen:
    """The parts of the public API that the cases use."""

    functions: set[str]
    loaders: list[tuple[list[ops.Op], dict[str, Any]]]

    def values(self, option: str) -> list[Any]:
        """Give the values that cases have for an option of a loader."""
        default = inspect.signature(fl.Loader).parameters[option].default
        return [options.get(option, default) for _, options in self.loaders]

    def ops(self, kind: type[ops.Op]) -> list[ops.Op]:
        """Give the ops of a kind that cases have."""
        return [op for chain, _ in self.loaders for op in chain if isinstance(op, kind)]


@pytest.fixture(scope="module")
def seen(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Open the loader of every case without reading, and record its options."""
    seen = Seen(set(), [])

    def recorded(name: str, function: Callable[..., fl.Source]) -> Callable[..., fl.Source]:
        def call(*arguments: Any, **options: Any) -> fl.Source:
            seen.functions.add(name)
            return function(*arguments, **options)

        return call

    class RecordedLoader(fl.Loader):
        def __init__(self, source: fl.Source, ops: Any = (), **options: Any) -> None:
            seen.loaders.append((list(ops), options))
            super().__init__(source, ops, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEEDLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name in SOURCES:
            if inspect.isfunction(getattr(fl, name)):
                patch.setattr(fl, name, recorded(name, getattr(fl, name)))
        patch.setattr(fl, "Loader", RecordedLoader)
        for name, case in CASES.items():
            needed = inspect.signature(case.make).parameters
            with case.open(inputs, 1, **({"share": inputs.node} if "share" in needed else {})):
                assert seen.loaders, name
    return seen


def choices(annotation: Any) -> set[Any]:
    """Give the values of all ``Literal`` in a type."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return set[Any]().union(*(choices(part) for part in get_args(annotation)))


def unused(annotation: str, module: Any, values: list[Any]) -> set[Any]:
    """Give the choices of a type that no value uses."""
    return {choice for choice in choices(eval(annotation, vars(module))) if choice not in values}


@pytest.mark.parametrize("kind", OPS, ids=lambda op: op.__name__)
def test_every_op_has_a_case_for_each_parameter_and_each_choice(seen: Seen, kind: type[ops.Op]) -> None:
    found = seen.ops(kind)
    assert found, f"no case of tests/stream_ops.py has ops.{kind.__name__}"
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        values = [getattr(op, field.name) for op in found]
        assert any(value != field.default for value in values), f"no case gives {field.name} of ops.{kind.__name__}"
        assert unused(str(field.type), ops, values) == set(), f"choices of {field.name} without a case"


def test_every_source_has_a_case(seen: Seen) -> None:
    assert seen.functions == {name for name in SOURCES if inspect.isfunction(getattr(fl, name))}
    assert len(seen.functions) >= 6


@pytest.mark.parametrize("option", [name for name in inspect.signature(fl.Loader).parameters if name != "unknown"])
def test_every_option_of_a_loader_has_a_case_for_each_choice(seen: Seen, option: str) -> None:
    if option in ("source", "ops") or option in NOT_COVERED:
        return
    parameter = inspect.signature(fl.Loader).parameters[option]
    values = seen.values(option)
    # Arrays cannot be compared with a choice.
    plain = [value for value in values if not isinstance(value, np.ndarray)]
    assert any(value != parameter.default for value in plain), f"no case of tests/stream_runs.py gives {option}"
    assert unused(parameter.annotation, loader_module, plain) == set(), f"choices of {option} without a case"


@pytest.mark.parametrize("kind", [fl.Arrival, fl.Planned, fl.Tuning], ids=lambda kind: kind.__name__)
def test_every_order_and_tuning_has_a_case_for_each_choice(seen: Seen, kind: type[Any]) -> None:
    found = [value for _, options in seen.loaders for value in options.values() if isinstance(value, kind)]
    for field in dataclasses.fields(kind):
        values = [getattr(policy, field.name) for policy in found]
        assert any(value != field.default for value in values), f"no case gives {field.name} of {kind.__name__}"
        assert unused(str(field.type), sys.modules[kind.__module__], values) == set(), f"choices of {field.name}"


def test_every_policy_has_a_case(seen: Seen) -> None:
    used = {type(value) for _, options in seen.loaders for value in options.values()}
    assert set(POLICIES) <= used
    forms = {getattr(value, "form", None) for _, options in seen.loaders for value in options.values()}
    assert forms >= {"encoded", "decoded", "resized"}
