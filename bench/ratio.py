"""A figure and what it is to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """A figure and the least, or the most, that it is to be."""

    what: str
    value: float | None
    bound: str
    target: float
    is_disturbed: bool = False

    @property
    def name(self) -> str:
        """What it is, with its target."""
        return f"{self.what} ({self.bound} {self.target:g})"

    @property
    def verdict(self) -> str:
        """Whether it reaches the target, as far as that can be said."""
        if self.value is None:
            return "not measured"
        if self.is_disturbed:
            return "disturbed"
        is_met = self.value >= self.target if self.bound == "at least" else self.value <= self.target
        return "yes" if is_met else "no"
