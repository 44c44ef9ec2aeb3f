"""The shapes of the plain data that loaders and diagnoses return, for type checkers and editors.

Each is an ordinary ``dict``. A test compares every key and type with what the engine returns.
"""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "Anomaly",
    "BatchTimes",
    "CacheCounts",
    "CostCounts",
    "LoadingCounts",
    "MemoryCounts",
    "OpCounts",
    "OrderReport",
    "QueueCounts",
    "Remedy",
    "ReservoirCounts",
    "RunReport",
    "SeekIndexCounts",
    "Snapshot",
    "StallSeconds",
    "StoreCounts",
    "SubstitutePair",
    "Times",
    "TriedRemedy",
]


class LoadingCounts(TypedDict):
    """Reading of samples, before any op."""

    busy_seconds: float
    samples: int


class OpCounts(TypedDict):
    """One op of the chain, over all threads."""

    name: str
    busy_seconds: float
    cpu_seconds: float
    bytes_out: int
    samples: int


class StoreCounts(TypedDict):
    """Reads from disk, a bucket or a storage server."""

    bytes: int
    reads: int
    busy_seconds: float
    bytes_received: int
    bytes_received_epoch: int
    requests: int
    retries: int
    candidates: dict[str, int]


class SeekIndexCounts(TypedDict):
    """Seek indexes that were built and used."""

    made: int
    not_seekable: int
    made_bytes: int
    busy_seconds: float
    used: int


class CacheCounts(TypedDict):
    """The cache of prepared samples."""

    hits: int
    misses: int
    ram_bytes: int
    ram_samples: int
    written_bytes: int


class ReservoirCounts(TypedDict):
    """The reservoir of a sequential shuffle."""

    size: int
    samples: int
    bytes: int
    peak_bytes: int
    reads: int
    read_bytes: int


class QueueCounts(TypedDict):
    """Batches between the threads and the consumer."""

    ready_batches: int
    open_batches: int
    limit_batches: int
    waiting_samples: int
    early_samples: int


class MemoryCounts(TypedDict):
    """The memory budget."""

    budget_bytes: int
    used_bytes: int
    peak_bytes: int


class CostCounts(TypedDict):
    """Predicted and measured costs of samples."""

    samples: int
    predicted_seconds: float
    taken_seconds: float
    error_seconds: float
    prediction_error: float


StallSeconds = dict[Literal["start", "read", "prepare", "memory"], float]
"""Time that the consumer waited for a batch, by cause."""


class SubstitutePair(TypedDict):
    """A bad sample and the sample that replaced it, both by key."""

    epoch: int
    position: int
    bad: str
    by: str
    reason: str


class Snapshot(TypedDict):
    """What :meth:`feedline.Loader.snapshot` returns: the run so far, in numbers."""

    batches: int
    samples: int
    content_bytes: int
    num_workers: int
    idle_seconds: float
    memory_wait_seconds: float
    core_seconds: float
    core_wait_seconds: float
    loading: LoadingCounts
    ops: list[OpCounts]
    store: StoreCounts
    seek_index: SeekIndexCounts
    cache: CacheCounts
    reservoir: ReservoirCounts | None
    queue: QueueCounts
    memory: MemoryCounts
    costs: CostCounts
    stall_seconds: StallSeconds
    substituted: int
    substitutes: list[SubstitutePair]


class OrderReport(TypedDict):
    """What :meth:`feedline.Loader.order_report` returns: how far an order moves samples."""

    samples: int
    max_displacement: int
    largest_displacement: int
    mean_displacement: float
    slow_samples: int
    slow_per_batch_least: int
    slow_per_batch_mean: float
    slow_per_batch_most: int
    slow_per_batch_most_in_order: int


class Times(TypedDict):
    """Times of batches in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    most: float


class _AnyAnomaly(TypedDict):
    kind: Literal["period", "slow_starts", "drift", "bimodal"]


class Anomaly(_AnyAnomaly, total=False):
    """Something unusual about the times of batches. ``kind`` decides which other keys there are."""

    batches: int
    slow_ms: float
    quick_ms: float
    chance: float
    cause: Literal["workers", "loading", "step"]
    first_ms: float
    usual_ms: float
    last_ms: float
    slow_share: float


class BatchTimes(TypedDict):
    """The times of a run's batches."""

    batches: int
    samples_per_second: float
    stall_share: float
    utilisation_sampled: float
    wait_ms: Times
    step_ms: Times
    total_ms: Times
    anomalies: list[Anomaly]


class _AnyRemedy(TypedDict):
    change: Literal[
        "workers", "cache", "memory", "planned", "seek_index", "fast_decode", "offload", "share", "pack", "reads",
        "batch_size", "native",
    ]  # fmt: skip
    predicted_samples_per_second: float
    predicted_gain: float
    error_band: float
    note: str


class Remedy(_AnyRemedy, total=False):
    """A change that would make a job faster. ``change`` decides which of the last keys there are.

    ``predicted_gain`` is relative: 0.5 means half as many samples per second again.
    """

    num_workers: int
    form: Literal["encoded", "decoded", "resized"]
    ram: int | None
    disk: int | None
    memory_budget: int
    jobs: int
    block: int
    batch_size: int
    ops: list[str]


class TriedRemedy(Remedy):
    """A remedy after :meth:`feedline.Diagnosis.try_remedy`: the prediction beside the measurement."""

    measured_samples_per_second: float


class RunReport(TypedDict):
    """What ``loader.report().to_dict()`` returns: what bounded the run."""

    bound: str
    measured_samples_per_second: float
    stall_share: float
    stall_seconds: StallSeconds
    idle_share: float
    remedies: list[Remedy]
    log: BatchTimes
