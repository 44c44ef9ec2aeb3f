"""Exceptions. All derive from :class:`FeedlineError`. Each also derives from the matching builtin exception."""

from __future__ import annotations

_SCREEN = 2400
"""Upper limit of characters in a message: thirty lines of eighty."""


def _on_a_screen(text: object) -> object:
    """Cut the middle out of a message that would fill more than a screen."""
    if not isinstance(text, str) or len(text) <= _SCREEN:
        return text
    start, end = text[: _SCREEN * 2 // 3], text[-_SCREEN // 4 :]
    return f"{start} [... {len(text) - len(start) - len(end)} characters left out ...] {end}"


class FeedlineError(Exception):
    """Base class of all exceptions that Feedline raises. No message is longer than a screen.

    >>> try:
    ...     fl.folder("no/such/folder")
    ... except fl.FeedlineError as error:
    ...     print(type(error).__name__)
    SourceNotFoundError
    """

    def __init__(self, *args: object) -> None:
        """Keep the message within a screen."""
        super().__init__(*map(_on_a_screen, args))


class PlanError(FeedlineError, ValueError):
    """Source, ops and settings do not fit together.

    >>> fl.Loader(fl.synthetic(4, (2,)), batch_size=0)
    Traceback (most recent call last):
    feedline.errors.PlanError: batch_size is 0; it has to be at least 1
    """


class ArgumentError(PlanError, TypeError):
    """An argument of another library's loader; the message names what to use instead.

    >>> fl.Loader(fl.synthetic(4, (2,)), batch_size=2, persistent_workers=True)
    Traceback (most recent call last):
    feedline.errors.ArgumentError: Loader() has no argument 'persistent_workers', as torch's DataLoader has: threads ...
    """


class SourceError(FeedlineError, ValueError):
    """A source cannot be opened.

    >>> fl.synthetic(0, (2,))
    Traceback (most recent call last):
    feedline.errors.SourceError: synthetic(0, (2,)): n and all sides must be whole numbers above 0
    """


class SourceNotFoundError(SourceError, FileNotFoundError):
    """A file or folder of a source does not exist.

    >>> issubclass(fl.SourceNotFoundError, FileNotFoundError)
    True
    """

    def __str__(self) -> str:
        """Return the message alone, without the fields of an OSError."""
        return str(self.args[0])


class StateError(FeedlineError, ValueError):
    """A state does not belong to this loader's stream.

    >>> fl.Loader(fl.synthetic(4, (2,)), batch_size=2).load_state_dict({"epoch": 0})
    Traceback (most recent call last):
    feedline.errors.StateError: this is not a state of a Loader: ...
    """


class ClosedError(FeedlineError, RuntimeError):
    """The loader is closed.

    >>> loader = fl.Loader(fl.synthetic(4, (2,)), batch_size=2)
    >>> loader.close()
    >>> next(iter(loader))
    Traceback (most recent call last):
    feedline.errors.ClosedError: ...
    """


class ForkError(FeedlineError, RuntimeError):
    """The loader was used before the process forked.

    >>> issubclass(fl.ForkError, RuntimeError)
    True
    """


class SupersededError(FeedlineError, RuntimeError):
    """A newer iterator of the same loader has taken over: one loader has one stream.

    >>> loader = fl.Loader(fl.synthetic(4, (2,)), batch_size=2)
    >>> first, second = iter(loader), iter(loader)
    >>> next(first)
    Traceback (most recent call last):
    feedline.errors.SupersededError: ...
    """


class OutOfMemoryError(FeedlineError, MemoryError):
    """The system has no memory for a batch.

    >>> issubclass(fl.OutOfMemoryError, MemoryError)
    True
    """


class NodeError(FeedlineError, ConnectionError):
    """The node of this machine cannot be reached, or is lost.

    >>> issubclass(fl.NodeError, ConnectionError)
    True
    """

    def __str__(self) -> str:
        """Return the message alone, without the fields of an OSError."""
        return str(self.args[0])


class MetricsError(FeedlineError, OSError):
    """The numbers of a loader cannot be served at an address, because it is in use or not of this machine.

    >>> issubclass(fl.MetricsError, OSError)
    True
    """

    def __str__(self) -> str:
        """Return the message alone, without the fields of an OSError."""
        return str(self.args[0])


class RaggedError(FeedlineError, ValueError):
    """Samples of one batch differ in shape.

    >>> grow = ops.Map(lambda data, label: (data.repeat(int(label)), label), on=("data", "label"))
    >>> next(iter(fl.Loader(fl.array(np.zeros((2, 3)), labels=[1, 2]), [grow], batch_size=2)))
    Traceback (most recent call last):
    feedline.errors.RaggedError: ...
    """


class TooManyFailuresError(FeedlineError, RuntimeError):
    """More samples were bad than ``fl.substitute`` allows.

    >>> issubclass(fl.TooManyFailuresError, RuntimeError)
    True
    """


class SampleError(FeedlineError, RuntimeError):
    """A sample could not be prepared. If a function of ``ops.Map`` raised, that exception is the cause.

    >>> loader = fl.Loader(fl.synthetic(4, (2,)), [ops.Map(lambda data: 1 / 0, on="data")], batch_size=2)
    >>> try:
    ...     next(iter(loader))
    ... except fl.SampleError as error:
    ...     print(error.index, error.key, error.op, repr(error.__cause__))
    0 synthetic-00000000 Map ZeroDivisionError('division by zero')
    """

    index: int
    """The sample's index."""
    key: str
    """Its name in the source."""
    path: str | None
    """The file it was read from."""
    op: str | None
    """The op that failed; ``None`` if the sample could not be loaded."""
    reason: str
    """What was wrong."""

    def __init__(self, message: str, index: int, key: str, path: str | None, op: str | None, reason: str) -> None:
        """Store the details beside the message."""
        super().__init__(message, index, key, path, op, reason)
        self.index, self.key, self.path, self.op, self.reason = index, key, path, op, reason

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])
