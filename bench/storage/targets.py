"""The targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.ratio import Ratio

# The noise of a table at a fixed number of cores.
NOISE = 1.08


def ratios(results: dict[str, Any]) -> Iterator[Ratio]:
    """Give all figures that can be computed from the parts that are there."""
    for name, data in results.get("policies", {}).items():
        yield from _policies(name, data)
    for name, data in results.get("shards", {}).items():
        fewer = data["none"]["bytes_per_sample"] / data["auto"]["bytes_per_sample"]
        yield Ratio(f"{name}, shards: auto, times less traffic than none", fewer, "at least", _exact(name))
    for name, data in results.get("approximate", {}).items():
        mean = results["policies"][name]["mean_file_bytes"] if "policies" in results else None
        if mean is not None and name == "photos":
            yield Ratio(f"{name}: approximate, times less traffic", mean / data["bytes_per_sample"], "at least", 2.5)
    for name, swept in results.get("cores", {}).items():
        for cores, data in swept.items():
            for other in ("none", "sophon"):
                slower = data["auto"]["best_epoch_seconds"] / data[other]["best_epoch_seconds"]
                yield Ratio(f"{name}, {cores} cores: time of auto / {other}", slower, "at most", NOISE)
    for name, data in results.get("formats", {}).items():
        sent = {policy: found["bytes_per_sample"] for policy, found in data["policies"].items()}
        yield Ratio(f"{name}: auto, traffic / sophon's", sent["auto"] / sent["sophon"], "at most", 1.02)
    yield from _storage_cpu(results.get("policies", {}))
    if volumes := results.get("volumes"):
        fewer = volumes["mean_file_bytes"] / volumes["auto"]["bytes_per_sample"]
        yield Ratio("volumes: auto, times less traffic than files", fewer, "at least", 5)


def _exact(name: str) -> float:
    return 1.9 if name == "imagenet" else 1.95


def _policies(name: str, data: dict[str, Any]) -> Iterator[Ratio]:
    sent = {policy: found["bytes_per_sample"] for policy, found in data["policies"].items()}
    seconds = {policy: found["best_epoch_seconds"] for policy, found in data["policies"].items()}
    mean = data["mean_file_bytes"]
    yield Ratio(f"{name}: sophon, traffic / min(file, 150 528)", sent["sophon"] / data["rule_bytes"], "at most", 1.02)
    yield Ratio(f"{name}: auto, times less traffic than files", mean / sent["auto"], "at least", _exact(name))
    yield Ratio(
        f"{name}: all, traffic / the worst other", sent["all"] / max(sent[p] for p in sent if p != "all"), "at least", 1
    )
    if name == "imagenet":
        yield Ratio(f"{name}: resize, traffic / none", sent["resize"] / sent["none"], "at least", 1)
    else:
        yield Ratio(f"{name}: resize, traffic / none", sent["resize"] / sent["none"], "at most", 1)
    yield Ratio(f"{name}: fastflow, traffic / none", sent["fastflow"] / sent["none"], "at most", 1.005)
    # Time falls in proportion to the bytes.
    proportion = (seconds["none"] / seconds["auto"]) / (sent["none"] / sent["auto"])
    yield Ratio(f"{name}: auto, times faster / times less traffic", proportion, "at least", 0.95)


def _storage_cpu(found: dict[str, Any]) -> Iterator[Ratio]:
    """Compare the server's processor time for saving bytes. Sending costs the same as for files of that size."""
    if len(found) < 2:
        return
    spent = {(name, policy): one["storage_cpu_ms_per_sample"] for name, policy, one in _each(found)}
    sent = {(name, policy): one["bytes_per_sample"] for name, policy, one in _each(found)}
    (small, large) = sorted(found, key=lambda name: sent[name, "none"])
    slope = (spent[large, "none"] - spent[small, "none"]) / (sent[large, "none"] - sent[small, "none"])

    def beyond(name: str, policy: str) -> float:
        sending = spent[small, "none"] + slope * (sent[name, policy] - sent[small, "none"])
        return spent[name, policy] - sending

    for name, data in found.items():
        moved = 1 - data["policies"]["sophon"]["candidates"].get("raw", 0.0)
        part = beyond(name, "auto") / (beyond(name, "sophon") / moved)
        yield Ratio(f"{name}: storage CPU of auto beyond sending / sophon's for a moved sample", part, "at most", 0.1)


def _each(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, data in found.items():
        for policy, one in data["policies"].items():
            yield name, policy, one
