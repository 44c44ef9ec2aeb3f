"""What tests/test_keras.py checks, in a process with one Keras backend: `keras_cases.py BACKEND`.

Prints one JSON object: the name of each case, and the traceback if it failed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

SAMPLES, BATCH = 22, 4
STEPS = 6


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), index / SAMPLES), index


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([Numbers()[index] for index in range(SAMPLES)])


def torch_loader(**options: Any) -> Any:
    import feedline.torch

    return feedline.torch.DataLoader(Numbers(), **({"batch_size": BATCH, "shuffle": True, "seed": 2} | options))


def native_loader() -> Any:
    import feedline as fl

    source = fl.array(np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3), labels=np.arange(SAMPLES))
    return fl.Loader(source, batch_size=BATCH, shuffle=True, seed=2, fields=("data", "label"))


def labels_of(batches: Any) -> list[list[int]]:
    return [np.asarray(labels).tolist() for _, labels in batches]


def dataset(loader: Any) -> tuple[Any, list[list[int]]]:
    """A dataset for Keras, and the list of labels that it gave."""
    import feedline.keras

    given: list[list[int]] = []

    class Recorded(feedline.keras.PyDataset):
        def __getitem__(self, index: int) -> Any:
            batch = super().__getitem__(index)
            given.append(np.asarray(batch[1]).tolist())
            return batch

    return Recorded(loader), given


def small_model(*, is_trained: bool = True) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    if is_trained:
        model.fit(np.zeros((1, 3)), np.zeros(1), verbose=0)
    return model


def fit(model: Any, train: Any, **options: Any) -> Any:
    return model.fit(train, **({"verbose": 0} | options))


def an_epoch_of_fit_is_an_epoch_of_the_loader() -> None:
    for make in (torch_loader, native_loader, lambda: torch_loader(num_workers=2)):
        train, given = dataset(make())
        fit(small_model(), train, epochs=3)
        reference = make()
        assert given == [batch for _ in range(3) for batch in labels_of(reference)]


def the_batch_that_keras_takes_to_learn_the_shapes_comes_again() -> None:
    train, given = dataset(torch_loader())
    fit(small_model(is_trained=False), train, epochs=2)
    reference = torch_loader()
    expected = [batch for _ in range(2) for batch in labels_of(reference)]
    assert given == [expected[0], *expected]


def fit_knows_the_number_of_steps() -> None:
    import keras

    found = []

    class Steps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            found.append(self.params["steps"])

    fit(small_model(), dataset(torch_loader())[0], callbacks=[Steps()])
    assert found == [STEPS]


def validation_data_is_read_in_whole_after_each_epoch() -> None:
    val, given = dataset(torch_loader(shuffle=False))
    history = fit(small_model(), dataset(torch_loader())[0], epochs=2, validation_data=val)
    assert given == labels_of(torch_loader(shuffle=False)) * 2
    assert len(history.history["val_loss"]) == 2


def evaluate_and_predict_take_a_dataset() -> None:
    model = small_model()
    assert model.predict(dataset(torch_loader(shuffle=False))[0], verbose=0).shape == (SAMPLES, 1)
    arrays = np.stack([Numbers()[index][0] for index in range(SAMPLES)]), np.arange(SAMPLES)
    found, expected = (
        model.evaluate(data, *rest, verbose=0)
        for data, rest in ((dataset(torch_loader())[0], ()), (arrays[0], arrays[1:]))
    )
    assert abs(found - expected) < 1e-3 * expected


def a_fit_that_was_left_early_does_not_disturb_the_next() -> None:
    import keras

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 2

    train, given = dataset(torch_loader(num_workers=1))
    model = small_model()
    fit(model, train, callbacks=[Stop()])
    fit(model, train, epochs=2)
    reference = torch_loader()
    expected = [labels_of(reference) for _ in range(3)]
    assert given == expected[0][:3] + expected[1] + expected[2]


def an_iterable_dataset_needs_the_number_of_steps() -> None:
    import feedline.torch

    train, given = dataset(feedline.torch.DataLoader(Stream(), batch_size=BATCH, num_workers=1))
    fit(small_model(), train, epochs=2, steps_per_epoch=STEPS, shuffle=False)
    assert given[: 2 * STEPS] == labels_of(feedline.torch.DataLoader(Stream(), batch_size=BATCH)) * 2


def check_resume(stop: int, make: Any = torch_loader, **options: Any) -> None:
    """Stop by an exception after some steps, and continue in new objects. The weights must be those without a stop."""
    import keras

    import feedline.keras

    class Crash(keras.callbacks.Callback):  # type: ignore[misc]
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            if self.steps == stop:
                raise KeyboardInterrupt

    def run(folder: str, *callbacks: Any) -> tuple[Any, list[list[int]]]:
        train, given = dataset(make(**options))
        checkpoint = feedline.keras.Checkpoint(folder, train, every=1)
        model = small_model()
        given.clear()
        fit(model, train, epochs=3, initial_epoch=checkpoint.epoch, callbacks=[checkpoint, *callbacks])
        return model, given

    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as broken:
        model, given = run(whole)
        with pytest.raises(KeyboardInterrupt):
            run(broken, Crash())
        assert len(list(Path(broken).glob("*.weights.h5"))) == 1, "one checkpoint is kept"
        resumed, rest = run(broken)
        assert rest == given[stop:], (stop, len(rest))
        for one, other in zip(model.weights, resumed.weights, strict=True):
            assert np.array_equal(*(np.asarray(part.detach() if hasattr(part, "detach") else part)
                                    for part in (one.value, other.value)))  # fmt: skip


def a_checkpoint_continues_with_the_next_batch() -> None:
    for stop in (1, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS):
        check_resume(stop)
    check_resume(STEPS + 2, num_workers=2)
    check_resume(STEPS + 2, native_loader)


def without_a_checkpoint_training_begins_with_epoch_0() -> None:
    import feedline.keras

    with tempfile.TemporaryDirectory() as folder:
        assert feedline.keras.Checkpoint(folder, dataset(torch_loader())[0]).epoch == 0


def a_checkpoint_after_each_epoch_begins_with_the_next() -> None:
    import feedline.keras

    with tempfile.TemporaryDirectory() as folder:
        train, _ = dataset(torch_loader())
        fit(small_model(), train, epochs=1, callbacks=[feedline.keras.Checkpoint(folder, train)])
        resumed, given = dataset(torch_loader())
        checkpoint = feedline.keras.Checkpoint(folder, resumed)
        assert checkpoint.epoch == 1
        fit(small_model(), resumed, epochs=2, initial_epoch=checkpoint.epoch, callbacks=[checkpoint])
        reference = torch_loader()
        labels_of(reference)
        assert given == labels_of(reference)


def a_checkpoint_refuses_another_dataset() -> None:
    import feedline as fl
    import feedline.keras

    with pytest.raises(fl.PlanError, match=r"it must be a feedline\.keras\.PyDataset"):
        feedline.keras.Checkpoint("folder", [1, 2])  # type: ignore[arg-type]


CASES = [
    an_epoch_of_fit_is_an_epoch_of_the_loader,
    the_batch_that_keras_takes_to_learn_the_shapes_comes_again,
    fit_knows_the_number_of_steps,
    validation_data_is_read_in_whole_after_each_epoch,
    evaluate_and_predict_take_a_dataset,
    a_fit_that_was_left_early_does_not_disturb_the_next,
    an_iterable_dataset_needs_the_number_of_steps,
    a_checkpoint_continues_with_the_next_batch,
    without_a_checkpoint_training_begins_with_epoch_0,
    a_checkpoint_after_each_epoch_begins_with_the_next,
    a_checkpoint_refuses_another_dataset,
]


def main() -> None:
    os.environ["KERAS_BACKEND"] = sys.argv[1]
    warnings.simplefilter("ignore")
    found: dict[str, str | None] = {}
    for case in CASES:
        try:
            case()
        except Exception:
            found[case.__name__] = traceback.format_exc()
        else:
            found[case.__name__] = None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
