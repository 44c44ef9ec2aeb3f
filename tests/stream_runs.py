"""Cases of ``streams.py`` for orders, ranks, bad samples and ways to run.

Most ways to run do not change the stream: the cases of caches and seek indexes say with ``like`` which stream theirs
has to equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from stream_case import case, in_any_order
from stream_inputs import JPEGS, Inputs

import feedline as fl
from feedline import ops, testing

KEPT = Path(__file__).parent / "kept"

CROPS = [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.RandomHorizontalFlip(), ops.Normalize()]
RESIZED = [ops.DecodeImage(), ops.Resize((24, 28)), ops.RandomCrop(16), ops.ToTensor()]
DELAYS_MS = [3.0 if number % 10 == 3 else 0.1 for number in range(60)]


def pictures(root: Any, chain: list[ops.Op] | None = None, **options: Any) -> fl.Loader:
    options = {"batch_size": 5, "shuffle": True, "seed": 5, **options}
    return fl.Loader(fl.folder(root), CROPS if chain is None else chain, **options)


def delayed(**options: Any) -> fl.Loader:
    """Samples of two costs; the kept files of planned and arrival order are of this plan."""
    options = {"shuffle": True, "seed": 5, **options}
    return fl.Loader(fl.synthetic(60, (4,)), [testing.delay(DELAYS_MS)], batch_size=6, **options)


@case({"all": {}, "none": {"shuffle": False}, "seed": {"seed": 2**40 + 1}})
def shuffle(inputs: Inputs, **options: Any) -> fl.Loader:
    """Shuffle all samples, or none."""
    return pictures(inputs.jpegs, **options)


WEIGHTS = [1.0 + number % 5 for number in range(JPEGS)]


@case(
    {
        "list": {"sampler": [3, 3, 1, 17, 0, 1, 22, 9, 3, 14, 15]},
        "array": {"sampler": np.arange(JPEGS - 1, -1, -2)},
        "weighted": {"sampler": fl.weighted(WEIGHTS)},
        "weighted_count": {"sampler": fl.weighted(WEIGHTS, num_samples=31)},
        "class_balanced": {"sampler": fl.class_balanced(num_samples=17)},
        "class_balanced_ranks": {"sampler": fl.class_balanced(), "rank": 1, "world_size": 2},
    }
)
def sampler(inputs: Inputs, **options: Any) -> fl.Loader:
    """Take samples more than once; each time has draws of its own."""
    return pictures(inputs.jpegs, shuffle=False, **options)


def rotated(epoch: int) -> list[int]:
    return [(index + 5 * epoch) % JPEGS for index in range(0, JPEGS, 2)]


@case({"function": {"sampler": rotated}})
def sampler_by_epoch(inputs: Inputs, **options: Any) -> fl.Loader:
    """Ask a function for the samples of each epoch."""
    return pictures(inputs.jpegs, shuffle=False, **options)


@case(
    {
        "one_reader": {"shuffle": fl.reservoir(6, readers=1, block="8kB")},
        "readers": {"shuffle": fl.reservoir(0.3, readers=3, block="8kB")},
        "default": {"shuffle": fl.reservoir()},
        "rank": {"shuffle": fl.reservoir(4, readers=2, block="4kB"), "rank": 1, "world_size": 2},
    }
)
def reservoir(inputs: Inputs, **options: Any) -> fl.Loader:
    """Shuffle by reading shards in sequence."""
    return fl.Loader(fl.tar(inputs.shards), CROPS, batch_size=5, seed=5, **options)


@case({"default": {}, "bound": {"max_displacement": 7}, "rank": {"rank": 0, "world_size": 2}})
def planned_by_size(inputs: Inputs, max_displacement: int | None = None, **options: Any) -> fl.Loader:
    """Deliver large files later."""
    options |= {"order": fl.planned(max_displacement=max_displacement), "ragged": ("blob",)}
    return fl.Loader(fl.files({"blob": inputs.two_sizes}), batch_size=4, shuffle=True, seed=5, **options)


@case({"default": {}, "bound": {"max_displacement": 9}})
def planned_by_costs(inputs: Inputs, max_displacement: int | None = None, **options: Any) -> fl.Loader:
    """Deliver samples later if a file of costs marks them as slow."""
    return delayed(order=fl.planned(max_displacement=max_displacement, costs=KEPT / "costs"), **options)


@case()
def arrival_replayed(inputs: Inputs, **options: Any) -> fl.Loader:
    """Deliver samples in the order of an earlier run's log."""
    return delayed(order=fl.arrival(replay=KEPT / "run.arrivals"), **options)


@case(measure=in_any_order)
def arrival(inputs: Inputs, **options: Any) -> fl.Loader:
    """Deliver samples as they get ready: their order is not fixed."""
    return pictures(inputs.jpegs, order=fl.arrival(), **options)


@case(measure=in_any_order)
def arrival_of_slow_samples(inputs: Inputs, **options: Any) -> fl.Loader:
    """Deliver slow samples after those that overtake them."""
    return delayed(order=fl.arrival(), **options)


@case(like="shuffle.all")
def arrival_in_order(inputs: Inputs, num_workers: int, **options: Any) -> fl.Loader:
    """Forbid overtaking, so that arrival order equals the sampler's order."""
    log = inputs.root / f"{num_workers}.arrivals"
    order = fl.arrival(log=log, max_displacement=0)
    return pictures(inputs.jpegs, num_workers=num_workers, order=order, **options)


@case({f"{number}": {"rank": number} for number in range(3)})
def rank_padded(inputs: Inputs, **options: Any) -> fl.Loader:
    """Divide 22 samples among three ranks: the last batches repeat samples."""
    source = fl.folder(inputs.jpegs).subset(range(22))
    return fl.Loader(source, CROPS, batch_size=4, shuffle=True, world_size=3, **options)


@case({f"{number}": {"rank": number} for number in range(3)})
def rank_dropping(inputs: Inputs, **options: Any) -> fl.Loader:
    """Divide the samples among three ranks and drop what does not fill a batch."""
    return pictures(inputs.jpegs, world_size=3, batch_size=3, drop_last=True, **options)


@case(resumed_with={"batch_size": 3})
def resumed_with_batches(inputs: Inputs, **options: Any) -> fl.Loader:
    """Resume with another batch size."""
    return pictures(inputs.jpegs, **options)


@case(resumed_with={"rank": 1, "world_size": 2})
def resumed_as_rank(inputs: Inputs, **options: Any) -> fl.Loader:
    """Resume with two ranks."""
    return pictures(inputs.jpegs, **options)


@case({"shuffled": {}, "rank": {"rank": 1, "world_size": 2}, "in_order": {"shuffle": False}})
def bad_samples(inputs: Inputs, **options: Any) -> fl.Loader:
    """Replace two bad samples by others."""
    return pictures(inputs.damaged, on_error=fl.substitute(0.3), **options)


@case({use: {"tuning": fl.tuning(seek_index=use)} for use in ("auto", "never")}, like="shuffle.all")  # type: ignore[arg-type]
def seek_index(inputs: Inputs, **options: Any) -> fl.Loader:
    """Read parts of files, or whole files."""
    return pictures(inputs.jpegs, **options)


@case()
def resized_pictures(inputs: Inputs, **options: Any) -> fl.Loader:
    """Resize before the first random op: the stream of the cases of caches."""
    return pictures(inputs.jpegs, RESIZED, **options)


FORMS = (None, "encoded", "decoded", "resized")


@case(
    {f"ram_{form}": {"cache": fl.cache(ram="1MB", form=form)} for form in FORMS}  # type: ignore[arg-type]
    | {f"disk_{form}": {"cache": fl.cache(disk="1MB", form=form)} for form in FORMS}  # type: ignore[arg-type]
    | {"both_small": {"cache": fl.cache(ram="20kB", disk="30kB", form="decoded")}},
    like="resized_pictures",
)
def cached(inputs: Inputs, **options: Any) -> fl.Loader:
    """Keep samples in memory or on disk, in each form."""
    return pictures(inputs.jpegs, RESIZED, **options)


@case()
def cast_volumes(inputs: Inputs, **options: Any) -> fl.Loader:
    """Crop volumes after an op that is not random: the stream of the next cases."""
    chain = [ops.Cast(), ops.RandomBalancedCrop(8)]
    return fl.Loader(fl.volumes(inputs.volumes[".nii.gz"]), chain, batch_size=2, shuffle=True, **options)


@case(
    {
        "ram": {"cache": fl.cache(ram="1MB", form="resized")},
        "disk": {"cache": fl.cache(disk="1MB", form="resized")},
        "disk_encoded": {"cache": fl.cache(disk="1MB", form="encoded")},
    },
    like="cast_volumes",
)
def cached_volumes(inputs: Inputs, **options: Any) -> fl.Loader:
    """Keep volumes with the foreground of their labels."""
    chain = [ops.Cast(), ops.RandomBalancedCrop(8)]
    return fl.Loader(fl.volumes(inputs.volumes[".nii.gz"]), chain, batch_size=2, shuffle=True, **options)


@case(
    {
        "auto_workers": {"num_workers": "auto"},
        "strict_order": {"order": "strict"},
        "first_come": {"tuning": fl.tuning(start="first-come")},
        "least_slack": {"tuning": fl.tuning(start="least-slack")},
        "one_batch_ahead": {"tuning": fl.tuning(prefetch_batches=1)},
        "little_memory": {"memory_budget": 50_000},
        "metrics": {"metrics": "127.0.0.1:0"},
    },
    like="shuffle.all",
)
def run_setting(inputs: Inputs, **options: Any) -> fl.Loader:
    """Change when work is done and its memory. The stream stays the same."""
    return pictures(inputs.jpegs, **options)
