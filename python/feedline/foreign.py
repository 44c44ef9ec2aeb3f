"""Names that users of other loaders expect, and their replacements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from feedline.errors import ArgumentError
from feedline.tuning import Tuning

_TUNING = {field.name for field in fields(Tuning)}

_KEYWORDS = {
    "dataset": "give the source first: fl.Loader(fl.folder(...), ...)",
    "batch_sampler": "give batch_size and sampler=[...]; order=fl.planned() balances slow samples",
    "collate_fn": "samples become batches by their shapes; ragged=(...) names fields whose samples differ in shape",
    "pin_memory": "call .pin_memory() on the tensors of framework='torch'",
    "pin_memory_device": "call .pin_memory() on the tensors of framework='torch'",
    "timeout": "a wait for a batch has no limit; fl.substitute(...) and the errors of sources end waits for storage",
    "worker_init_fn": "threads prepare the samples and all randomness follows from seed=...",
    "multiprocessing_context": "threads prepare the samples; there are no worker processes",
    "generator": "all randomness follows from seed=...",
    "prefetch_factor": "give tuning=fl.tuning(prefetch_batches=...), the number of batches prepared ahead",
    "persistent_workers": "threads stay from epoch to epoch anyway",
    "in_order": 'order="strict" is the default, order=fl.arrival() gives what is ready first',
    "device": "copy the tensors yourself: batch['image'].to(device, non_blocking=True)",
    "transform": "give a list of ops as second argument; functions go into ops.Map(fn)",
    "num_replicas": "give world_size=...",
}

_ATTRIBUTES = {
    "dataset": "loader.source is the source, and the loader divides the data over the ranks itself; iterate it "
    "directly instead of giving it to accelerator.prepare() or Trainer, and resume with loader.load_state_dict()",
    "sampler": "the order follows from shuffle, sampler and seed; loader.set_epoch(n) chooses an epoch",
    "batch_sampler": "loader.state_dict() and loader.load_state_dict() resume without skipping batches",
    "batch_size": "loader.plan.to_toml() shows all settings",
    "drop_last": "loader.plan.to_toml() shows all settings",
    "collate_fn": "samples become batches by their shapes; ragged=(...) names fields whose samples differ in shape",
    "num_workers": "loader.snapshot()['num_workers'] is the number of threads",
    "generator": "all randomness follows from seed=...",
    "pin_memory": "call .pin_memory() on the tensors of framework='torch'",
    "worker_init_fn": "threads prepare the samples and all randomness follows from seed=...",
    "multiprocessing_context": "threads prepare the samples; there are no worker processes",
}


def refuse_keywords(given: Mapping[str, object]) -> None:
    """Raise for unknown keyword arguments. For those of torch's DataLoader, name the replacement."""
    for name in given:
        if name in _TUNING:
            raise ArgumentError(f"Loader() has no argument {name!r}: give tuning=fl.tuning({name}=...)")
        instead = _KEYWORDS.get(name)
        if instead is None:
            raise ArgumentError(f"Loader() has no argument {name!r}")
        raise ArgumentError(f"Loader() has no argument {name!r}, as torch's DataLoader has: {instead}")


def missing_attribute(name: str) -> AttributeError:
    """Return the error for an attribute that a loader does not have."""
    instead = _ATTRIBUTES.get(name)
    text = f"'Loader' object has no attribute {name!r}"
    return AttributeError(text if instead is None else f"{text}, as torch's DataLoader has: {instead}")
