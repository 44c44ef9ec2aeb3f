"""Samplers: a list of indices given as ``sampler=[...]``, or random draws by weight or by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from feedline.arguments import short
from feedline.display import Displayed, Facts, count
from feedline.errors import PlanError


@dataclass(frozen=True, repr=False)
class Weighted(Displayed):
    """Draws with replacement in proportion to weights; made by :func:`weighted`.

    >>> fl.weighted([1.0, 3.0])
    <feedline.Weighted: 2 weights, as many samples per epoch as the source has>
    """

    weights: tuple[float, ...]
    num_samples: int | None = None

    def __repr__(self) -> str:
        """Show the number of weights in one line."""
        return f"<feedline.Weighted: {count(len(self.weights), 'weight')}, {_per_epoch(self.num_samples)}>"

    def _facts(self) -> Facts:
        return {"weights": f"{len(self.weights):,}", "samples": _per_epoch(self.num_samples)}


@dataclass(frozen=True, repr=False)
class ClassBalanced(Displayed):
    """Draws with replacement, each class equally likely; made by :func:`class_balanced`.

    >>> fl.class_balanced(1000)
    <feedline.ClassBalanced: 1,000 per epoch>
    """

    num_samples: int | None = None

    def __repr__(self) -> str:
        """Show the number of samples in one line."""
        return f"<feedline.ClassBalanced: {_per_epoch(self.num_samples)}>"

    def _facts(self) -> Facts:
        return {"samples": _per_epoch(self.num_samples)}


def _per_epoch(num_samples: int | None) -> str:
    return "as many samples per epoch as the source has" if num_samples is None else f"{num_samples:,} per epoch"


Sampler = Union[
    Sequence[int],
    "npt.NDArray[np.integer[Any]]",
    Weighted,
    ClassBalanced,
    Callable[[int], Sequence[int]],
    Iterable[int],
]


def weighted(weights: Sequence[float] | npt.NDArray[np.floating[Any]], num_samples: int | None = None) -> Weighted:
    """Draw ``num_samples`` samples per epoch (default: as many as the source has), in proportion to ``weights``.

    ``weights`` has one number for each sample of the source, in the order of the source. Samples are drawn with
    replacement. A sample that is drawn twice in an epoch is augmented differently each time.

    >>> loader = fl.Loader(fl.synthetic(4, (2,)), batch_size=2, sampler=fl.weighted([1, 1, 1, 5]))
    """
    return Weighted(tuple(float(weight) for weight in weights), num_samples)


def class_balanced(num_samples: int | None = None) -> ClassBalanced:
    """Draw ``num_samples`` samples per epoch, with replacement, so that each class is equally likely.

    By default, an epoch has as many samples as the source.

    >>> source = fl.array(np.zeros((4, 2)), labels=["cat", "dog", "dog", "dog"])
    >>> loader = fl.Loader(source, batch_size=2, sampler=fl.class_balanced())
    """
    return ClassBalanced(num_samples)


def whole_numbers(name: str, values: Any) -> list[int]:
    """Return sample indices as Python integers. Raise for anything else."""
    is_sequence = isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, (str, bytes))
    if not is_sequence or not all(
        isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 0 for value in values
    ):
        raise PlanError(f"{name} is {short(values)}; it must be a sequence of sample indices, whole numbers from 0 on")
    return np.asarray(values).tolist() if isinstance(values, np.ndarray) else [int(value) for value in values]


def to_plan(sampler: Sampler) -> dict[str, Any]:
    """Return the sampler as a table of a plan."""
    if isinstance(sampler, Weighted):
        table: dict[str, Any] = {"kind": "weighted", "weights": list(sampler.weights)}
    elif isinstance(sampler, ClassBalanced):
        table = {"kind": "class_balanced"}
    else:
        return {"kind": "list", "indices": whole_numbers("sampler", sampler)}
    if sampler.num_samples is not None:
        if not isinstance(sampler.num_samples, (int, np.integer)) or sampler.num_samples < 1:
            raise PlanError(f"num_samples is {sampler.num_samples}; it must be a whole number from 1 on")
        table["num_samples"] = int(sampler.num_samples)
    return table
