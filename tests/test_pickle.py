"""Loaders, sources and plans travel to other processes: by plan and state, or with an error that says what to do."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import folder_of

import feedline as fl
from feedline import ops


def invert(data: Any) -> Any:
    return 255 - data


def make(root: Path, **options: Any) -> fl.Loader:
    options = {"batch_size": 4, "shuffle": True, "seed": 7, **options}
    return fl.Loader(fl.folder(root), [ops.DecodeImage(), ops.RandomResizedCrop(8)], **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pickled")
    folder_of(root / "pictures", 18)
    return root


def rest(loader: fl.Loader) -> list[bytes]:
    return [batch["image"].tobytes() for batch in loader]


def in_child(loader: fl.Loader, pipe: Any) -> None:
    pipe.send(rest(loader))


@pytest.mark.parametrize("how", [lambda loader: pickle.loads(pickle.dumps(loader)), copy.deepcopy])
def test_law_4_a_loader_that_was_copied_goes_on_where_it_stood(how: Any, root: Path) -> None:
    with make(root) as loader:
        batches = iter(loader)
        next(batches)
        with how(loader) as copied:
            assert copied.state_dict() == loader.state_dict()
            expected = [batch["image"].tobytes() for batch in batches]
            assert rest(copied) == expected
            assert rest(copied) == rest(loader), "and with the next epoch"


def test_a_loader_travels_to_a_process_that_is_spawned(root: Path) -> None:
    with make(root) as loader:
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=in_child, args=(loader, theirs))
        child.start()
        assert ours.poll(120)
        assert ours.recv() == rest(loader)
        child.join(60)
        assert child.exitcode == 0


def test_sources_and_plans_travel(root: Path) -> None:
    listed = [str(path) for path in sorted(root.rglob("*.png"))]
    sources = [
        fl.folder(root),
        fl.folder(root).split({"train": 0.5})["train"],
        fl.folder(root).subset([1, 3]),
        fl.files({"image": listed}, labels=np.arange(len(listed))),
        fl.synthetic(5, (2, 2)),
    ]
    for source in sources:
        again = pickle.loads(pickle.dumps(source))
        assert (again.indices, again.classes, again.fields) == (source.indices, source.classes, source.fields)
        assert copy.deepcopy(source).indices == source.indices
    plan = make(root).plan
    assert pickle.loads(pickle.dumps(plan)).fingerprints == plan.fingerprints
    read = fl.Plan.from_toml(plan.to_toml())
    assert pickle.loads(pickle.dumps(read)).fingerprints == plan.fingerprints


def test_a_source_that_lists_other_samples_where_it_arrives_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, 6)
    sent = pickle.dumps(fl.folder(tmp_path))
    next(tmp_path.rglob("*.png")).unlink()
    with pytest.raises(fl.SourceError, match="lists other samples than when it was pickled"):
        pickle.loads(sent)


def test_an_array_in_memory_says_how_it_could_travel() -> None:
    loader = fl.Loader(fl.array(np.zeros((4, 2))), batch_size=2)
    for what in (loader, loader.source, loader.plan):
        with pytest.raises(ValueError, match=r"array in memory; save it with numpy.save"):
            pickle.dumps(what)
    assert len(list(copy.deepcopy(loader))) == 2, "within the process it is shared"


def test_functions_travel_by_name_and_lambdas_say_what_to_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process may have imported it, and then it carries lambdas.
    monkeypatch.delitem(sys.modules, "cloudpickle", raising=False)

    def mapped(function: Any) -> fl.Loader:
        chain = [ops.DecodeImage(), ops.Resize((8, 8)), ops.Map(function)]
        return fl.Loader(fl.folder(root), chain, batch_size=4)

    with mapped(invert) as loader, pickle.loads(pickle.dumps(loader)) as again:
        assert rest(again) == rest(loader)
    with pytest.raises(
        fl.PlanError, match=r"'.*<lambda>' of .*test_pickle.py:\d+ cannot be sent .* define it with def"
    ):
        pickle.dumps(mapped(lambda data: data))


@pytest.mark.parametrize("function", ["lambda data: data * 0 + 7", "seven"])
def test_cloudpickle_carries_lambdas_and_functions_of_the_main_program(function: str, tmp_path: Path) -> None:
    send = f"""
import pickle
import cloudpickle
import feedline as fl
from feedline import ops
def seven(data):
    return data * 0 + 7
loader = fl.Loader(fl.synthetic(4, (2, 2)), [ops.Map({function}, on="data")], batch_size=4)
open({str(tmp_path / "sent")!r}, "wb").write(pickle.dumps(loader))
"""
    receive = f"""
import pickle
loader = pickle.load(open({str(tmp_path / "sent")!r}, "rb"))
print(sorted({{int(value) for batch in loader for value in batch["data"].ravel()}}))
"""
    for code, expected in ((send, ""), (receive, "[7]\n")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.stdout == expected, done.stderr
