"""A figure and its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """A figure and its lower or upper limit."""

    what: str
    value: float | None
    bound: str
    target: float
    is_disturbed: bool = False

    @property
    def name(self) -> str:
        """The figure with its target, as text."""
        return f"{self.what} ({self.bound} {self.target:g})"

    @property
    def verdict(self) -> str:
        """Whether it reaches the target: yes, no, not measured, or disturbed by other processes."""
        if self.value is None:
            return "not measured"
        if self.is_disturbed:
            return "disturbed"
        is_met = self.value >= self.target if self.bound == "at least" else self.value <= self.target
        return "yes" if is_met else "no"
