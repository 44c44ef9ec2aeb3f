"""What Feedline is to reach against its peers, and whether it does.

In: the results of one race. Out: ratios with their targets; the value is None where a side was not measured. A ratio
of speeds is disturbed if another program used the machine while a side of it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.harness import QUIET_CORES
from bench.peers import dali, feedline, ffcv, libjpeg_turbo, torch_dataloader
from bench.peers.contenders import OURS, PEERS
from bench.peers.peer import Peer
from bench.ratio import Ratio

Results = Mapping[str, Mapping[str, Any]]


def is_disturbed(result: Mapping[str, Any]) -> bool:
    """Whether another program used the machine during the run that counts."""
    return bool(result["other_cores"] > QUIET_CORES)


def of(results: Results) -> list[Ratio]:
    """All ratios, in the order of the page."""

    def speed(ours: Peer, peers: Iterable[Peer], what: str, target: float) -> Ratio:
        against = [results[peer.name] for peer in peers if peer.name in results]
        if ours.name not in results or not against:
            return Ratio(what, None, "at least", target)
        one, other = results[ours.name], max(against, key=lambda result: float(result["samples_per_second"]))
        value = one["samples_per_second"] / other["samples_per_second"]
        return Ratio(what, value, "at least", target, is_disturbed(one) or is_disturbed(other))

    def cost(ours: Peer, what: str, target: float) -> Ratio:
        both = [results[peer.name]["cpu_ms_per_sample"] for peer in (ours, libjpeg_turbo.ALONE) if peer.name in results]
        return Ratio(what, both[0] / both[1] if len(both) == 2 else None, "at most", target)

    def worst(key: str, what: str, target: float) -> Ratio:
        found = [results[peer.name][key] for peer in OURS if peer.name in results]
        return Ratio(what, max(found) if found else None, "at most", target)

    readers_of_jpeg = [peer for peer in PEERS if peer is not ffcv.RAW]
    return [
        speed(feedline.WITHOUT_INDEX, [dali.DALI], "images/s, no index / DALI", 1.75),
        speed(feedline.BUILDING, [dali.DALI], "images/s, building the index / DALI", 1.2),
        speed(feedline.WITH_INDEX, [dali.DALI], "images/s, with index / DALI", 2.3),
        speed(feedline.WITH_INDEX, readers_of_jpeg, "images/s, with index / fastest peer that reads JPEG", 2.1),
        speed(feedline.WITH_INDEX, [ffcv.RAW], "images/s, with index / FFCV with pixels", 0.9),
        speed(feedline.PIXELS, [ffcv.RAW], "images/s, packed pixels / FFCV with pixels", 3.0),
        speed(feedline.WITH_INDEX, [torch_dataloader.TORCHVISION], "images/s, with index / torch, torchvision", 1.7),
        speed(feedline.WITH_INDEX, [torch_dataloader.PILLOW], "images/s, with index / torch, Pillow", 2.5),
        cost(feedline.WITH_INDEX, "CPU per image, with index / libjpeg-turbo's full decode alone", 0.8),
        cost(feedline.WITHOUT_INDEX, "CPU per image, no index / libjpeg-turbo's full decode alone", 1.0),
        worst("peak_mb", "peak memory of Feedline, MB", 250),
        worst("first_batch_seconds", "first batch of Feedline, s", 0.2),
    ]
