"""Exceptions. All derive from :class:`FeedlineError`; each also from the builtin one would expect."""

from __future__ import annotations

_SCREEN = 2400
"""The most characters of a message: thirty lines of eighty."""


def _on_a_screen(text: object) -> object:
    """Shorten a message that would fill more than a screen in the middle."""
    if not isinstance(text, str) or len(text) <= _SCREEN:
        return text
    start, end = text[: _SCREEN * 2 // 3], text[-_SCREEN // 4 :]
    return f"{start} [... {len(text) - len(start) - len(end)} characters left out ...] {end}"


class FeedlineError(Exception):
    """Anything that Feedline raises. No message is longer than a screen."""

    def __init__(self, *args: object) -> None:
        """Keep the message within a screen."""
        super().__init__(*map(_on_a_screen, args))


class PlanError(FeedlineError, ValueError):
    """Source, ops and settings do not fit together."""


class ArgumentError(PlanError, TypeError):
    """An argument of another library's loader; the message names what to use instead."""


class SourceError(FeedlineError, ValueError):
    """A source cannot be opened."""


class SourceNotFoundError(SourceError, FileNotFoundError):
    """A file or folder of a source does not exist."""

    def __str__(self) -> str:
        """Give the message alone, without the fields of an operating-system error."""
        return str(self.args[0])


class StateError(FeedlineError, ValueError):
    """A state does not belong to this loader's stream."""


class ClosedError(FeedlineError, RuntimeError):
    """The loader is closed."""


class ForkError(FeedlineError, RuntimeError):
    """The loader was used before the process forked."""


class SupersededError(FeedlineError, RuntimeError):
    """A newer iterator of the same loader has taken over: one loader has one stream."""


class OutOfMemoryError(FeedlineError, MemoryError):
    """The system has no memory for a batch."""


class NodeError(FeedlineError, ConnectionError):
    """The node of this machine cannot be reached, or is lost."""

    def __str__(self) -> str:
        """Give the message alone, without the fields of an operating-system error."""
        return str(self.args[0])


class MetricsError(FeedlineError, OSError):
    """The numbers of a loader cannot be served at an address, because it is in use or not of this machine."""

    def __str__(self) -> str:
        """Give the message alone, without the fields of an operating-system error."""
        return str(self.args[0])


class RaggedError(FeedlineError, ValueError):
    """Samples of one batch differ in shape."""


class TooManyFailuresError(FeedlineError, RuntimeError):
    """More samples were bad than ``fl.substitute`` allows."""


class SampleError(FeedlineError, RuntimeError):
    """A sample could not be prepared. If a function of ``ops.Map`` raised, that exception is the cause."""

    index: int
    """The sample's index."""
    key: str
    """Its name in the source."""
    path: str | None
    """The file it was read from."""
    op: str | None
    """The op that could not do its work; ``None`` if the sample could not be loaded."""
    reason: str
    """What was wrong."""

    def __init__(self, message: str, index: int, key: str, path: str | None, op: str | None, reason: str) -> None:
        """Keep the facts beside the message."""
        super().__init__(message, index, key, path, op, reason)
        self.index, self.key, self.path, self.op, self.reason = index, key, path, op, reason

    def __str__(self) -> str:
        """Give the message alone."""
        return str(self.args[0])
