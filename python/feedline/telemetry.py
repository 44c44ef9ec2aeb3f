"""Reports the metrics of loaders through OpenTelemetry, if that is installed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from feedline import _feedline
from feedline.errors import FeedlineError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

    from feedline.loader import Loader

_UNITS = {"_seconds": "s", "_bytes": "By"}
"""OpenTelemetry units by the suffix of a metric's name."""

_observed: weakref.WeakKeyDictionary[Any, _Observed] = weakref.WeakKeyDictionary()


def observe(
    loader: Loader, meter_provider: MeterProvider | None = None, *, attributes: Mapping[str, str] | None = None
) -> None:
    """Report the metrics of a loader through OpenTelemetry, for as long as the loader exists.

    The metrics are those that ``Loader(..., metrics="127.0.0.1:9400")`` serves. They have names such as
    ``feedline.loader.samples`` and ``feedline.loader.stall`` (in seconds), and attributes ``plan``, ``rank``, ``op``,
    ``cause``. This function measures and sends nothing: readers and exporters of the provider decide when metrics are
    read, and where they go.

    Args:
        loader: the loader; it is not kept alive.
        meter_provider: by default the one that ``opentelemetry.metrics.set_meter_provider`` has set, or will set.
        attributes: additional attributes, such as ``{"loader": "train"}``. They distinguish two loaders of the same
            plan and rank.

    Raises:
        ImportError: ``opentelemetry-api`` is not installed.

    >>> fl.telemetry.observe(loader, attributes={"loader": "train"})
    """
    try:
        from opentelemetry import metrics
    except ImportError as error:
        text = "telemetry.observe needs OpenTelemetry: pip install opentelemetry-api, and opentelemetry-sdk to export"
        raise ImportError(text) from error
    provider = meter_provider if meter_provider is not None else metrics.get_meter_provider()
    # One set of instruments per provider: OpenTelemetry warns if a name is registered twice.
    observed = _observed.get(provider)
    if observed is None:
        observed = _observed[provider] = _Observed(provider.get_meter("feedline", _feedline.version()))
    observed.add(_Reader(loader, attributes or {}))


class _Reader:
    """The metrics of one loader, read once for all instruments."""

    def __init__(self, loader: Loader, attributes: Mapping[str, str]) -> None:
        self._loader, self._attributes = weakref.ref(loader), dict(attributes)
        self._unread: dict[str, list[tuple[dict[str, str], float]]] = {}

    def is_gone(self) -> bool:
        return self._loader() is None

    def metrics(self) -> list[tuple[str, str, str, list[tuple[dict[str, str], float]]]]:
        loader = self._loader()
        try:
            return [] if loader is None else _feedline.numbers(loader._native)
        except FeedlineError:
            # In a forked child, the loader belongs to the parent.
            return []

    def take(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the values of a metric. Read all metrics again if this one was taken before."""
        if name not in self._unread:
            # One reading serves all instruments of a collection, so that their values fit together.
            self._unread = {name: values for name, _, _, values in self.metrics()}
        values = self._unread.pop(name, [])
        return [({**labels, **self._attributes}, value) for labels, value in values]


class _Observed:
    """The instruments of a meter, and the loaders that they report."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._names = meter, set[str]()
        self._readers: list[_Reader] = []

    def add(self, reader: _Reader) -> None:
        """Report another loader."""
        self._readers = [other for other in self._readers if not other.is_gone()] + [reader]
        for name, kind, help_text, _ in reader.metrics():
            if name not in self._names:
                self._names.add(name)
                self._instrument(name, kind, help_text)

    def _instrument(self, name: str, kind: str, help_text: str) -> None:
        create = self._meter.create_observable_counter if kind == "counter" else self._meter.create_observable_gauge
        told, unit = to_instrument(name)
        create(told, callbacks=[self._callback(name)], unit=unit, description=help_text)

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observations(options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, labels) for reader in self._readers for labels, value in reader.take(name)]

        return observations


def to_instrument(name: str) -> tuple[str, str]:
    """Return the name and the unit of a metric in OpenTelemetry.

    ``name`` is its name in Prometheus. OpenTelemetry's Prometheus exporter turns the result into ``name`` again.

    >>> to_instrument("feedline_loader_stall_seconds_total")
    ('feedline.loader.stall', 's')
    """
    bare = name.removesuffix("_total")
    for ending, unit in _UNITS.items():
        if bare.endswith(ending):
            return _dotted(bare.removesuffix(ending)), unit
    return _dotted(bare), ""


def _dotted(name: str) -> str:
    return name.replace("feedline_loader_", "feedline.loader.", 1)
