"""Users of other loaders: errors for trainers and for keywords of torch name the replacement."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import feedline as fl
from feedline import foreign


def make(**options: Any) -> fl.Loader:
    return fl.Loader(fl.array(np.arange(24, dtype=np.float32).reshape(8, 3)), batch_size=4, **options)


def test_every_argument_of_torchs_loader_that_ours_lacks_names_a_replacement() -> None:
    ours = set(inspect.signature(fl.Loader.__init__).parameters)
    theirs = set(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
    missing = theirs - ours - {"self"}
    assert "collate_fn" in missing
    for name in missing:
        with pytest.raises(fl.ArgumentError, match=f"no argument '{name}', as torch's DataLoader has: .{{20}}"):
            make(**{name: None})
    with pytest.raises(TypeError, match="Loader\\(\\) has no argument 'batchsize'"):
        make(batchsize=3)
    assert not set(foreign._KEYWORDS) & ours, "what there is needs no replacement"


def test_attributes_of_torchs_loader_name_what_to_use_instead() -> None:
    loader = make()
    assert not hasattr(loader, "dataset"), "it is not taken for a DataLoader"
    for name in foreign._ATTRIBUTES:
        with pytest.raises(AttributeError, match=f"no attribute '{name}', as torch's DataLoader has: "):
            getattr(loader, name)
    with pytest.raises(AttributeError, match=r"^'Loader' object has no attribute 'nothing'$"):
        _ = loader.nothing  # type: ignore[attr-defined]


def test_accelerate_says_how_to_go_on_without_it() -> None:
    import accelerate

    words = r"iterate it directly .* resume with loader.load_state_dict\(\)"
    with pytest.raises(AttributeError, match=words):
        accelerate.data_loader.prepare_data_loader(make(framework="torch"))
    with pytest.raises(AttributeError, match=words):
        accelerate.skip_first_batches(make(framework="torch"), 1)


def test_keras_takes_the_generator_that_its_error_names() -> None:
    code = """
import keras, numpy as np
import feedline as fl
data = np.arange(24, dtype=np.float32).reshape(8, 3)
loader = fl.Loader(fl.array(data, labels=np.zeros(8, np.float32)), batch_size=4, fields=("data", "label"))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
try:
    model.fit(loader, verbose=0)
except ValueError as error:
    assert "Unrecognized data type" in str(error) and "loader.forever()" in str(error), error
history = model.fit(loader.forever(), steps_per_epoch=len(loader), epochs=2, verbose=0)
assert len(history.history["loss"]) == 2
print("trained")
"""
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=240)
    assert done.stdout == "trained\n", done.stderr


def test_forever_goes_from_epoch_to_epoch() -> None:
    batches = make(shuffle=True).forever()
    epochs = [[int(i) for _ in range(2) for i in next(batches)["index"]] for _ in range(3)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1]
