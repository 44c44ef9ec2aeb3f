"""Learns the shapes of what functions return, for plans whose samples are shared.

In: ops. Out: the same ops, in which each ``ops.Map`` declares its results. Its shapes are those of the
first sample. A node keeps arrays of one shape only, so a later sample with another shape is a bad sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from feedline.ops import Map, Op

MakeSample = Callable[[list[Op]], dict[str, Any]]


def with_learnt_shapes(ops: Sequence[Op], make_sample: MakeSample) -> list[Op]:
    """Return ``ops`` with declared shapes. ``make_sample`` prepares the first sample, with some ops."""
    learnt: list[Op] = []
    for op in ops:
        learnt.append(_declared(learnt, op, make_sample) if isinstance(op, Map) else op)
    return learnt


def _declared(before: list[Op], op: Map, make_sample: MakeSample) -> Op:
    declared = dict(op.shapes or {})
    outputs = op.on if op.out is None else op.out
    names = [outputs] if isinstance(outputs, str) else list(outputs)
    missing = [name for name in names if name not in declared]
    if not missing:
        return op
    sample = make_sample([*before, op])
    for name, value in ((name, sample[name][0]) for name in missing if name in sample):
        # Texts and bytes have no shape; bytes are delivered as such a row. The plan then says why it cannot be shared.
        if isinstance(value, (np.ndarray, np.generic)) and not (value.dtype == np.uint8 and value.ndim == 1):
            declared[name] = (value.dtype.name, value.shape)
    return replace(op, shapes=declared)
