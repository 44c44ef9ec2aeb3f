"""The sources of rank and world size: arguments, process groups and launchers, with real processes."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import environment, placement

N = 30
WAIT = 240
"""Seconds: a limit against hangs."""

SETUP = """
import json, os, sys
import numpy as np
import feedline as fl

def ids(loader):
    return [int(i) for batch in loader for i, p in zip(batch["index"], batch.get("padded", [False] * 99)) if not p]

def make(**options):
    return fl.Loader(fl.synthetic(30, (4,)), batch_size=4, shuffle=True, **options)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(code: str, *arguments: str, count: int = 1, **variables: str) -> list[tuple[list[Any], str]]:
    """Run processes in parallel. Give the JSON lines that each printed, and its error output."""
    started = []
    for number in range(count):
        environ = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        environ |= {key: value.replace("NUMBER", str(number)) for key, value in variables.items()}
        command = [sys.executable, "-c", SETUP + code, str(number), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, env=environ, **pipes))
    ended = [process.communicate(timeout=WAIT) for process in started]
    for process, (_, errors) in zip(started, ended, strict=True):
        assert process.returncode == 0, errors
    return [([json.loads(line) for line in out.splitlines() if line.startswith("[")], errors) for out, errors in ended]


def test_processes_of_torch_that_were_spawned_divide_the_data(tmp_path: Path) -> None:
    """The loader is made first and sent to each process. Only the process group knows the rank."""
    script = tmp_path / "train.py"
    script.write_text(
        SETUP
        + """
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, port, loader):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    length = len(loader)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    epochs = [ids(loader), ids(loader), ids(make())]
    with open(f"{sys.argv[2]}/{rank}", "w") as file:
        json.dump([length, len(loader), epochs], file)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (int(sys.argv[1]), make()), nprocs=2)
"""
    )
    command = [sys.executable, str(script), str(free_port()), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert [ranks[:2] for ranks in found] == [[8, 4], [8, 4]], "the length follows the process group"
    for epoch in range(3):
        parts = [set(ranks[2][epoch]) for ranks in found]
        assert sorted(parts[0] | parts[1]) == list(range(N))
        assert not parts[0] & parts[1]
    for rank in range(2):
        warning = f"the data of rank {rank} of 2, found in the process group of torch.distributed"
        assert done.stderr.count(warning) == 1, done.stderr
    assert "pass rank=0, world_size=1 to give it all data" in done.stderr


def test_a_trainer_of_lightning_with_ddp_divides_the_data(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        SETUP
        + """
import lightning, torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(4, 1), []
    def training_step(self, batch):
        self.seen += [int(i) for i, p in zip(batch["index"], batch["padded"]) if not p]
        return self.layer(batch["data"].float()).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)
    def on_train_end(self):
        with open(f"{sys.argv[1]}/{self.global_rank}", "w") as file:
            json.dump(self.seen, file)

if __name__ == "__main__":
    trainer = lightning.Trainer(accelerator="cpu", strategy="ddp", devices=2, max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), make(framework="torch"))
"""
    )
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    parts = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(N))


def test_processes_of_jax_divide_the_data() -> None:
    code = """
import jax
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, int(sys.argv[1]))
print(json.dumps(ids(make())))
"""
    found = run(code, str(free_port()), count=2, JAX_PLATFORMS="cpu")
    assert sorted(found[0][0][0] + found[1][0][0]) == list(range(N))
    assert "found in the process group of jax.distributed" in found[0][1]


GROUP = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=int(sys.argv[1]), world_size=COUNT)
"""


def test_a_mesh_gives_ranks_of_one_model_replica_the_same_data() -> None:
    code = (
        GROUP.replace("COUNT", "4")
        + """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
print(json.dumps([ids(make(mesh=given)) for given in ((mesh, "dp"), mesh["dp"], (mesh, ("dp", "tp")))]))
refused = []
for given in (mesh, (mesh, "pp"), 5):
    try:
        make(mesh=given)
    except fl.PlanError as error:
        refused.append(str(error))
try:
    make(mesh=mesh["dp"], rank=0, world_size=1)
except fl.PlanError as error:
    refused.append(str(error))
print(json.dumps(refused))
"""
    )
    found = run(code, str(free_port()), count=4)
    named, one, both = zip(*(lines[0] for lines, _ in found), strict=True)
    assert named == one
    assert named[0] == named[1] != named[2] == named[3]
    assert sorted(named[0] + named[2]) == list(range(N))
    assert sorted(sum(both, [])) == list(range(N))
    several, unknown, no_mesh, twice = found[0][0][1]
    assert "mesh=(mesh, ('dp',))" in several
    assert "('dp', 'tp'), not 'pp'" in unknown
    assert "mesh is int; it must be a torch DeviceMesh" in no_mesh
    assert "not both" in twice
    assert "this process gets" not in found[0][1], "what is asked for is not announced"


def test_a_group_of_another_size_than_the_launcher_started_is_refused() -> None:
    code = (
        GROUP.replace("COUNT", "1")
        + """
try:
    make()
except fl.PlanError as error:
    print(json.dumps([str(error)]))
print(json.dumps(ids(make(rank=0, world_size=1))))
os.environ["WORLD_SIZE"] = "1"
print(json.dumps(ids(make())))
"""
    )
    ((lines, _),) = run(code, str(free_port()), RANK="0", WORLD_SIZE="2")
    assert lines[0] == [
        "the process group of torch.distributed has 1 processes, but torchrun started 2; give rank and world_size to "
        "the Loader"
    ]
    assert sorted(lines[1]) == sorted(lines[2]) == list(range(N))


def test_nothing_imports_torch_or_jax_to_find_the_rank() -> None:
    code = "ids(make())\nprint(json.dumps([name for name in ('torch', 'jax') if name in sys.modules]))"
    ((lines, errors),) = run(code, RANK="0", WORLD_SIZE="2")
    assert lines == [[]]
    assert errors.count("the data of rank 0 of 2, found in the environment of torchrun") == 1


def test_a_loader_that_divides_nothing_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    placement._announced_before.clear()
    source = fl.array(np.arange(N))
    with caplog.at_level(logging.WARNING, logger="feedline"):
        assert sum(len(batch["index"]) for batch in fl.Loader(source, batch_size=4, rank=0, world_size=1)) == N
        assert caplog.records == []
        assert sum(len(batch["index"]) for batch in fl.Loader(source, batch_size=4)) == N // 2
        fl.Loader(source, batch_size=4)
    assert [record.levelname for record in caplog.records] == ["WARNING"], "it is said once"


def test_a_plan_has_no_rank_and_each_loader_made_from_it_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = fl.Loader(fl.synthetic(N, (4,)), batch_size=4, shuffle=True)
    text = loader.plan.to_toml()
    assert "rank" not in text
    assert "world" not in text
    first = [int(index) for batch in loader for index in batch["index"]]
    monkeypatch.setenv("RANK", "1")
    plan = fl.Plan.from_toml(text)
    second = [int(index) for batch in fl.Loader.from_plan(plan) for index in batch["index"]]
    assert sorted(first + second) == list(range(N))
    whole = fl.Loader.from_plan(plan, rank=0, world_size=1)
    assert sorted(int(index) for batch in whole for index in batch["index"]) == list(range(N))


def test_a_plan_that_names_a_rank_says_where_it_belongs() -> None:
    text = 'batch_size = 1\n[source]\nkind = "synthetic"\nn = 4\nshape = [1]\n[run]\nrank = 0\nworld_size = 2\n'
    with pytest.raises(fl.PlanError, match=r"remove both lines, .*Loader.from_plan\(plan, rank=0, world_size=2\)"):
        fl.Plan.from_toml(text)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8"}, 8),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"MPI_LOCALNRANKS": "3"}, 3),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "2"}, 2),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "3"}, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"}, 1),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "many"}, 1),
        ({"MASTER_ADDR": "127.0.0.1"}, 16),
        ({"MASTER_ADDR": "node7"}, 1),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "eight"}, 1),
    ],
)
def test_launchers_tell_how_many_ranks_share_a_machine(
    variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.local_ranks(16) == expected


def test_ranks_and_loaders_of_one_machine_divide_its_cores_and_memory() -> None:
    code = """
def limits(loader):
    snapshot = loader.snapshot()
    return [snapshot["num_workers"], snapshot["memory"]["budget_bytes"]]

def numbers(**options):
    return fl.Loader(fl.synthetic(1000, (4,)), batch_size=4, **options)

alone, other = numbers(), numbers()
found = [limits(alone)]
next(first := iter(alone))
next(second := iter(other))
found += [limits(alone), limits(other)]
second.leave()
found += [limits(alone)]
first.leave()
os.environ["LOCAL_WORLD_SIZE"] = "8"
found += [limits(numbers(rank=0, world_size=8)), limits(numbers(num_workers=3, memory_budget=10**6))]
print(json.dumps(found))
"""
    ((lines, _),) = run(code)
    before, beside, other, after, rank, asked = lines[0]
    cores, memory = len(os.sched_getaffinity(0)), before[1]
    assert before[0] == cores
    assert (beside[1], other) == (memory // 2, [-(-cores // 2), memory // 2])
    assert after[1] == memory, "a loader that does not iterate does not count"
    assert rank == [-(-cores // 8), memory // 8]
    assert asked == [3, 10**6], "what is asked for is not divided"


@pytest.mark.parametrize(
    ("own", "of_parent", "ranks", "expected"),
    [
        (64, 64, 8, 8),  # not bound: each takes an eighth
        (8, 64, 8, 1),  # each rank has cores of its own
        (32, 64, 8, 4),  # four ranks share the cores of a socket
        (3, 64, 8, 1),
        (2, 2, 8, 2),
        (1, 1, 4, 1),
    ],
)
def test_ranks_that_are_bound_to_cores_divide_only_what_they_share(
    own: int, of_parent: int, ranks: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    affinity = {0: set(range(own)), os.getppid(): set(range(of_parent))}
    monkeypatch.setattr(os, "sched_getaffinity", affinity.__getitem__)
    assert environment.ranks_on_own_cores(ranks) == expected


def test_a_rank_that_its_launcher_bound_to_cores_takes_all_of_them() -> None:
    code = "import feedline as fl; print(fl.environment.machine(2)[2:])"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core cannot be divided")
    variables = {**os.environ, "LOCAL_WORLD_SIZE": "2"}

    def found(**options: Any) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, env=variables, check=True, **options).stdout

    assert found().strip() == "(2, 2)"
    assert found(preexec_fn=lambda: os.sched_setaffinity(0, cores[: len(cores) // 2])).strip() == "(2, 1)"


def test_law_4_a_loaded_state_goes_on_when_the_group_comes_later_and_stays_when_it_goes() -> None:
    code = (
        """
loader = make(rank=0, world_size=2)
begun = iter(loader)
next(begun), next(begun)
state = loader.state_dict()
whole = make(rank=int(sys.argv[1]), world_size=2)
whole.load_state_dict(state)
rest = ids(whole)
later = make()
later.load_state_dict(state)
"""
        + GROUP.replace("COUNT", "2")
        + """
later.set_epoch(later.epoch)
first = ids(later)
dist.destroy_process_group()
length = len(later)
second = ids(later)
print(json.dumps([first == rest, length == len(whole), second == ids(whole)]))
"""
    )
    for lines, _ in run(code, str(free_port()), count=2):
        assert lines == [[True, True, True]]


def test_a_plan_says_nothing_of_ranks_and_a_loader_that_is_told_its_rank_neither() -> None:
    code = """
import pickle
text = make(rank=0, world_size=1).plan.to_toml()
loader = fl.Loader.from_plan(fl.Plan.from_toml(text), rank=0, world_size=1)
again = pickle.loads(pickle.dumps(loader))
print(json.dumps(sorted(ids(loader)) == sorted(ids(again)) and [len(loader)]))
"""
    ((lines, errors),) = run(code, RANK="1", WORLD_SIZE="2")
    assert lines == [[8]]
    assert "this process gets" not in errors


def test_a_rank_that_no_launcher_sets_is_refused_by_name() -> None:
    code = """
try:
    make()
except fl.PlanError as error:
    print(json.dumps([str(error)]))
"""
    ((lines, _),) = run(code, RANK="99999999999", WORLD_SIZE="999999999999")
    assert "rank is 99999999999; it must be a whole number from 0 to" in lines[0][0]
