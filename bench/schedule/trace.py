"""How busy workers and accelerators were over time.

In: spans of work, when the epoch began and how long it took. Out: for each quarter of a second the part of the time
that was spent in work, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.schedule.loaders import Span

INTERVAL_SECONDS = 0.25


def shares(spans: Sequence[Span], began: float, seconds: float, of: int) -> list[float]:
    """Divide the spans of `of` workers into intervals; the last, which is not whole, is left out."""
    edges = began + INTERVAL_SECONDS * np.arange(int(seconds / INTERVAL_SECONDS) + 1)
    begins, ends, counts = np.array(spans, np.float64).reshape(-1, 3).T
    done = [float((np.clip(edge - begins, 0, ends - begins) * counts).sum()) for edge in edges]
    return [round(float(share), 4) for share in np.diff(done) / (INTERVAL_SECONDS * of)]
