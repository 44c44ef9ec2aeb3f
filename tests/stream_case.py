"""The cases of ``streams.py``, and how a stream becomes a digest.

A case makes loaders. Its digests cover two epochs, the rest of the stream after a resume in the middle of the first
epoch, and the state from which the new loader resumed. The first loader has three workers and the resumed one has one,
so a stream that depends on threads never matches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from stream_inputs import Inputs

import feedline as fl

EPOCHS = 2
HEX_DIGITS = 32

Make = Callable[..., fl.Loader]
Digests = dict[str, str]


@dataclass(frozen=True)
class Case:
    """One stream: how its loader is made, and which part of it is fixed."""

    make: Make
    """Takes the inputs, ``options`` and ``num_workers``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    like: str | None = None
    """The case that has the same stream."""
    resumed_with: Mapping[str, Any] = field(default_factory=dict)
    """Options of the resuming loader, if they differ from those of the first one."""
    measure: Callable[[Case, Inputs, int | None], Digests] | None = None
    """Computes the digests if the order of the samples is not fixed."""

    def open(self, inputs: Inputs, workers: int, **options: Any) -> fl.Loader:
        """Make a loader."""
        return self.make(inputs, **{"num_workers": workers, **self.options, **options})


CASES: dict[str, Case] = {}
"""All cases by name. The modules that ``streams.py`` imports fill it."""


def case(
    variants: Mapping[str, Mapping[str, Any]] | None = None, like: str | None = None, **fields: Any
) -> Callable[[Make], Make]:
    """Add a function that makes a loader to the table, once for each variant of its options.

    In ``like``, ``{}`` stands for the name of the variant.
    """

    def add(make: Make) -> Make:
        for variant, options in (variants or {"": {}}).items():
            name = f"{make.__name__}.{variant}" if variant else make.__name__
            assert name not in CASES, f"two cases are called {name}"
            CASES[name] = Case(make, options, like and like.format(variant), **fields)
        return make

    return add


def measured(name: str, inputs: Inputs, workers: int | None = None) -> Digests:
    """Run a case with a cache folder of its own. ``workers`` replaces its own numbers of workers."""
    with _own_cache(inputs.root / "caches" / name):
        return (CASES[name].measure or in_order)(CASES[name], inputs, workers)


def input_digests(inputs: Inputs) -> Digests:
    """Hash the pictures that most cases read."""

    def contents(folder: Path) -> Iterator[str | bytes]:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            yield str(path.relative_to(folder))
            yield path.read_bytes()

    return {folder.name: _hash(*contents(folder)) for folder in (inputs.jpegs, inputs.formats)}


def in_order(case: Case, inputs: Inputs, workers: int | None) -> Digests:
    """Hash batches in their order."""
    with case.open(inputs, workers or 3) as loader:
        stream = [batch_hash(batch) for _ in range(EPOCHS) for batch in loader]
        received = max(1, len(loader) // 2)
    with case.open(inputs, workers or 1) as loader:
        state = state_after(loader, received)[1]
    with case.open(inputs, workers or 1, **case.resumed_with) as loader:
        loader.load_state_dict(state)
        rest = [batch_hash(batch) for _ in range(EPOCHS) for batch in loader]
    assert case.resumed_with or rest == stream[received:], "the resumed stream is not the rest (law 4)"
    return {"stream": joined(stream), "resumed": joined(rest), "state": _hash(json.dumps(state, sort_keys=True))}


def in_any_order(case: Case, inputs: Inputs, workers: int | None) -> Digests:
    """Hash the samples of each epoch sorted by their ids: their order depends on timing, their bytes do not.

    What was received before a resume counts as part of the resumed stream, because it decides what is left.
    """
    with case.open(inputs, workers or 3) as loader:
        stream = [_sorted_hash(loader) for _ in range(EPOCHS)]
        received = max(1, len(loader) // 2)
    with case.open(inputs, workers or 1) as loader:
        batches, state = state_after(loader, received)
    with case.open(inputs, workers or 1) as loader:
        loader.load_state_dict(state)
        rest = [_sorted_hash([*batches, *loader]), _sorted_hash(loader)]
    assert rest == stream, "the resumed stream has other samples (law 4)"
    return {"stream": joined(stream), "resumed": joined(rest)}


def by_portion(case: Case, inputs: Inputs, workers: int | None) -> Digests:
    """Hash what a node gives to a lone job, sorted by segment and round.

    A node chooses the order of segments. What a segment holds in a round is fixed: its samples, their order and draws.
    Batches are as long as a segment, so each holds one portion, which the state names.
    """
    portions = []
    with case.open(inputs, workers or 3, share=inputs.new_node()) as loader:
        before = loader.state_dict()
        for epoch in range(EPOCHS):
            for batch in loader:
                after = loader.state_dict()
                pairs = zip(before["rounds"], after["rounds"], strict=True)
                (segment,) = [number for number, (then, now) in enumerate(pairs) if then != now]
                assert after["rounds"][segment] == epoch + 1, "a lone job gets every round"
                portions.append((epoch, segment, batch_hash(batch)))
                before = after
    return {"stream": joined([digest for *_, digest in sorted(portions)])}


def state_after(loader: fl.Loader, received: int) -> tuple[list[Any], dict[str, Any]]:
    """Receive some batches. Return them and the state, after a round trip through JSON."""
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(received)]
    return batches, json.loads(json.dumps(loader.state_dict()))


def batch_hash(batch: Any) -> str:
    """Hash the names, dtypes, shapes and bytes of a batch."""
    fields = batch.items() if isinstance(batch, dict) else enumerate(batch)
    return _hash(*(part for name, value in fields for part in (f"field {name}", *_parts(value))))


def _sorted_hash(batches: Iterable[dict[str, Any]]) -> str:
    """Hash the samples of some batches, sorted by their ids."""
    samples = []
    for batch in batches:
        for place, index in enumerate(batch["index"].tolist()):
            samples.append((index, batch_hash({name: np.asarray(value[place]) for name, value in batch.items()})))
    return joined([f"{index} {digest}" for index, digest in sorted(samples)])


def _parts(value: Any) -> Iterator[str | bytes]:
    """Give the parts of a field: text, an array, a tensor, or a list of these."""
    if isinstance(value, list):
        yield f"list {len(value)}"
        for entry in value:
            yield from _parts(entry)
    elif isinstance(value, str):
        yield f"text {value}"
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}"
        yield value.tobytes()
    else:
        import torch

        yield f"tensor {value.dtype} {tuple(value.shape)}"
        yield value.contiguous().view(torch.uint8).numpy().tobytes()


def joined(digests: list[str]) -> str:
    return _hash(*digests)


def _hash(*parts: str | bytes) -> str:
    """Hash parts with their lengths, so that no two lists of parts look alike."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()[:HEX_DIGITS]


@contextlib.contextmanager
def _own_cache(folder: Path) -> Iterator[None]:
    before = os.environ.get("FEEDLINE_CACHE")
    os.environ["FEEDLINE_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["FEEDLINE_CACHE"]
        else:
            os.environ["FEEDLINE_CACHE"] = before
