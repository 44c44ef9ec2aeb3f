"""Cases of ``streams.py`` for remote data, and for samples that other processes prepare.

Storage servers, object stores and nodes do not change the stream: ``like`` names the case whose stream theirs has to
equal. The exception is the carousel, in which a node chooses the order.
"""

from __future__ import annotations

from typing import Any

from stream_case import by_portion, case, in_any_order
from stream_inputs import Inputs
from stream_ops import CROP, WHOLE
from stream_runs import CROPS, RESIZED, pictures
from stream_sources import CROPS as TAR_CROPS

import feedline as fl
from feedline import ops, testing

OFFLOADS = ("auto", "none", "all", "resize", "fastflow", "sophon")
RESERVOIR = fl.reservoir(0.3, readers=3, block="8kB")
WITHOUT_DRAWS = [ops.DecodeImage(), ops.Resize((16, 20)), ops.Normalize()]


def served(inputs: Inputs, part: str) -> str:
    """Give the address of the JPEGs, the shards or a folder of volumes at the storage server."""
    assert all((inputs.jpegs, inputs.shards, inputs.volumes)), "they are made before they are served"
    return f"{inputs.storage}/{part}"


def attached(inputs: Inputs) -> fl.Share:
    """Get samples from the node, and fail if it is lost."""
    return fl.share(inputs.node, on_loss="raise")


STORES = ("slow_disk", "bucket", "server")


def shards_of(inputs: Inputs, store: str) -> str:
    """Give the address of the shards in another kind of store."""
    if store == "slow_disk":
        return testing.slow_disk(inputs.shards / "*.tar", seek_ms=0, mb_per_second=1000)
    return f"{inputs.bucket}/*.tar" if store == "bucket" else served(inputs, "shards/*.tar")


@case({store: {"store": store} for store in STORES}, like="tar_with_index")
def tar_of(inputs: Inputs, store: str, **options: Any) -> fl.Loader:
    """Read the packed shards from a remote store."""
    return fl.Loader(fl.tar(shards_of(inputs, store)), TAR_CROPS, batch_size=5, shuffle=True, **options)


@case({store: {"store": store} for store in STORES}, like="reservoir.readers")
def reservoir_of(inputs: Inputs, store: str, **options: Any) -> fl.Loader:
    """Read the packed shards from a remote store, in sequence."""
    options |= {"shuffle": RESERVOIR, "seed": 5}
    return fl.Loader(fl.tar(shards_of(inputs, store)), CROPS, batch_size=5, **options)


@case(like="volumes.nii.gz")
def volumes_of_a_server(inputs: Inputs, **options: Any) -> fl.Loader:
    """Read compressed volumes from a storage server."""
    return fl.Loader(fl.volumes(served(inputs, "volumes.nii.gz")), [WHOLE], batch_size=2, shuffle=True, **options)


@case({ending: {"ending": ending} for ending in ("nii", "nii.gz", "npy")}, like="volume_crop.crop.{}")
def volume_crop_of_a_server(inputs: Inputs, ending: str, **options: Any) -> fl.Loader:
    """Let a storage server crop volumes."""
    source = fl.volumes(served(inputs, f"volumes.{ending}"))
    return fl.Loader(source, [CROP], batch_size=2, shuffle=True, seed=2, **options)


@case({policy: {"tuning": fl.tuning(offload=policy)} for policy in OFFLOADS}, like="shuffle.all")
def offload(inputs: Inputs, **options: Any) -> fl.Loader:
    """Let a storage server prepare samples."""
    return pictures(served(inputs, "jpegs"), **options)


@case({policy: {"tuning": fl.tuning(offload=policy)} for policy in OFFLOADS}, like="resized_pictures")
def offload_resized(inputs: Inputs, **options: Any) -> fl.Loader:
    """Let a storage server prepare samples that are small before the first random op."""
    return pictures(served(inputs, "jpegs"), RESIZED, **options)


@case({policy: {"tuning": fl.tuning(offload=policy)} for policy in ("none", "all")}, like="picture_op.fast")
def offload_fast(inputs: Inputs, **options: Any) -> fl.Loader:
    """Let a storage server decode approximately."""
    chain = [ops.DecodeImage(fast=True), ops.RandomResizedCrop(8)]
    return pictures(served(inputs, "jpegs"), chain, batch_size=7, seed=3, **options)


@case({"ram": {"ram": "1MB"}, "disk": {"disk": "1MB"}}, like="resized_pictures")
def cached_of_a_server(inputs: Inputs, ram: str | None = None, disk: str | None = None, **options: Any) -> fl.Loader:
    """Cache samples that come from a storage server."""
    return pictures(served(inputs, "jpegs"), RESIZED, cache=fl.cache(ram=ram, disk=disk, form="decoded"), **options)


@case({"0": {"rank": 0}, "1": {"rank": 1}})
def private_rank(inputs: Inputs, **options: Any) -> fl.Loader:
    """Prepare the share of a rank alone. A node must give the same stream."""
    return pictures(inputs.jpegs, world_size=2, **options)


@case({"0": {"rank": 0}, "1": {"rank": 1}}, like="private_rank.{}")
def rank_of_a_node(inputs: Inputs, **options: Any) -> fl.Loader:
    """Get the share of a rank from a node."""
    return pictures(inputs.jpegs, world_size=2, share=attached(inputs), **options)


@case(like="bad_samples.rank")
def bad_samples_of_a_node(inputs: Inputs, **options: Any) -> fl.Loader:
    """Get the share of a rank from a node, with bad samples replaced."""
    options |= {"rank": 1, "world_size": 2, "share": attached(inputs)}
    return pictures(inputs.damaged, on_error=fl.substitute(0.3), **options)


@case(like="reservoir.rank")
def reservoir_of_a_node(inputs: Inputs, **options: Any) -> fl.Loader:
    """Get the share of a rank from a node, which reads in sequence."""
    options |= {"rank": 1, "world_size": 2, "share": attached(inputs)}
    shuffle = fl.reservoir(4, readers=2, block="4kB")
    return fl.Loader(fl.tar(inputs.shards), CROPS, batch_size=5, seed=5, shuffle=shuffle, **options)


@case(measure=in_any_order)
def carousel(inputs: Inputs, **options: Any) -> fl.Loader:
    """Share with other jobs, without draws: the samples of an epoch are fixed, their order is not."""
    return pictures(inputs.jpegs, WITHOUT_DRAWS, share=attached(inputs), **options)


@case(measure=in_any_order, like="carousel")
def carousel_of_shards(inputs: Inputs, **options: Any) -> fl.Loader:
    """Share what a node reads in sequence."""
    options |= {"shuffle": RESERVOIR, "share": attached(inputs)}
    return fl.Loader(fl.tar(inputs.shards), WITHOUT_DRAWS, batch_size=5, **options)


@case(measure=by_portion)
def carousel_portions(inputs: Inputs, share: str, **options: Any) -> fl.Loader:
    """Be the only job of a node: each segment holds the same samples with the same draws in the same round."""
    chain = [ops.RandomCrop(4, on="data")]
    source = fl.synthetic(64, (8, 8, 3))
    return fl.Loader(source, chain, batch_size=8, shuffle=True, share=fl.share(share, on_loss="raise"), **options)
