"""`feedline.torch.timm.create_loader` beside timm's own. Training and resume are in tests/test_torch_trainers.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm.data
import torch
from PIL import Image
from timm.data.loader import PrefetchLoader
from timm.data.mixup import FastCollateMixup

import feedline.torch
from feedline.torch.timm import create_loader

COUNT, BATCH = 22, 4
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose class is their number."""
    root = tmp_path_factory.mktemp("timm")
    for number in range(COUNT):
        file = root / f"{number:02}" / "picture.png"
        file.parent.mkdir()
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (48, 40, 3), np.uint8)).save(file)
    return root


def make(folder: Path, function: Any = create_loader, **options: Any) -> Any:
    dataset = options.pop("dataset", None) or timm.data.create_dataset("", root=str(folder))
    given: dict[str, Any] = {"input_size": (3, 32, 32), "batch_size": BATCH, "num_workers": 2, "device": CPU}
    return function(dataset, **(given | options))


def in_training(folder: Path, **options: Any) -> Any:
    return make(folder, **({"is_training": True, "seed": 3, "color_jitter": 0.4} | options))


def check_same(one: Any, other: Any) -> None:
    pairs = list(zip(one, other, strict=True))
    assert pairs
    for (images, labels), (others, other_labels) in pairs:
        assert images.dtype is others.dtype
        assert torch.equal(images, others)
        assert labels.dtype is other_labels.dtype
        assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("use_prefetcher", [True, False])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_without_random_transforms_are_those_of_timm(
    folder: Path, use_prefetcher: bool, num_workers: int
) -> None:
    options = {"use_prefetcher": use_prefetcher, "num_workers": num_workers}
    own, theirs = make(folder, **options), make(folder, timm.data.create_loader, **options)
    assert isinstance(own, PrefetchLoader) is use_prefetcher
    assert len(own) == len(theirs)
    check_same(own, theirs)


@pytest.mark.parametrize("use_prefetcher", [True, False])
def test_workers_make_samples_and_not_batches(folder: Path, use_prefetcher: bool) -> None:
    loader = make(folder, use_prefetcher=use_prefetcher)
    list(loader)
    assert loader.snapshot()["samples"] == COUNT


@pytest.mark.parametrize("use_prefetcher", [True, False])
def test_laws_1_2_and_4_hold_for_training_batches(folder: Path, use_prefetcher: bool) -> None:
    loader = in_training(
        folder, use_prefetcher=use_prefetcher, auto_augment="rand-m9-mstd0.5", persistent_workers=False
    )
    checked = feedline.torch.verify(loader.loader if use_prefetcher else loader)
    assert checked, str(checked)


@pytest.mark.parametrize("taken", [0, 1, 3, 5])
def test_law_4_a_state_counts_delivered_batches_and_erases_as_before(folder: Path, taken: int) -> None:
    whole, broken, resumed = (in_training(folder, re_prob=1.0, re_mode="pixel") for _ in range(3))
    reference = [batch for _ in range(2) for batch in whole]
    batches = iter(broken)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(broken.state_dict()))
    torch.manual_seed(99)
    resumed.load_state_dict(state)
    rest = list(resumed)
    if taken < len(resumed):
        rest += list(resumed)
    check_same(rest, reference[taken:])


def test_erasing_leaves_the_random_numbers_of_the_program_alone(folder: Path) -> None:
    loader = in_training(folder, re_prob=1.0, re_mode="pixel")
    torch.manual_seed(5)
    list(loader)
    found = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(found, torch.rand(3))


def mixup() -> FastCollateMixup:
    return FastCollateMixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=COUNT)


def test_laws_1_2_and_4_hold_with_mixup_in_the_workers(folder: Path) -> None:
    loader = in_training(folder, collate_fn=mixup(), persistent_workers=False)
    checked = feedline.torch.verify(loader.loader)
    assert checked, str(checked)


def test_mixup_may_be_turned_off_while_workers_stay(folder: Path) -> None:
    loader = in_training(folder, collate_fn=mixup())
    assert loader.mixup_enabled
    assert any(not is_one_hot(targets) for _, targets in loader)
    loader.mixup_enabled = False
    assert all(is_one_hot(targets) for _, targets in loader)


def is_one_hot(targets: torch.Tensor) -> bool:
    """Whether each row belongs to one class, apart from label smoothing."""
    return bool((targets.max(dim=1).values > 0.85).all())


def test_batches_of_scheduled_sizes_come_as_scheduled(folder: Path) -> None:
    options = {"input_size_choices": [(3, 32, 32), (3, 48, 48)], "batch_size_choices": [4, 2]}
    loader = in_training(folder, **options)
    shapes = [tuple(images.shape) for images, _ in loader]
    assert {shape[2] for shape in shapes} == {32, 48}
    assert all(shape[0] == (4 if shape[2] == 32 else 2) for shape in shapes)
    again = in_training(folder, **options)
    batches = iter(again)
    next(batches)
    resumed = in_training(folder, **options)
    resumed.load_state_dict(again.state_dict())
    assert [tuple(images.shape) for images, _ in resumed] == shapes[1:]


def test_several_views_of_a_picture_are_put_together_by_timm(folder: Path) -> None:
    dataset = timm.data.AugMixDataset(timm.data.create_dataset("", root=str(folder)), num_splits=2)
    loader = in_training(folder, dataset=dataset, num_aug_splits=2, auto_augment="augmix-m3-w2")
    images, labels = next(iter(loader))
    assert images.shape == (2 * BATCH, 3, 32, 32)
    assert torch.equal(labels[:BATCH], labels[BATCH:])


def test_a_loader_of_many_epochs_keeps_its_workers(folder: Path) -> None:
    loader = in_training(folder, use_multi_epochs_loader=True, use_prefetcher=False, persistent_workers=False)
    workers = []
    for _ in range(2):
        seen = sum(len(labels) for _, labels in loader)
        assert seen == COUNT // BATCH * BATCH
        workers.append([process.pid for process in loader._iterator._workers])
    assert workers[0] == workers[1]


RANKS = """
import json, sys
import torch, timm.data
from feedline.torch.timm import create_loader
torch.distributed.init_process_group("gloo")
dataset = timm.data.create_dataset("", root=sys.argv[1])
loader = create_loader(dataset, 32, batch_size=4, is_training=True, num_workers=1, device=torch.device("cpu"),
                       distributed=True, num_aug_repeats=2, seed=7)
found = {}
for images, labels in loader:
    for image, label in zip(images, labels.tolist()):
        found.setdefault(label, []).append(float(image.double().sum()))
rank = torch.distributed.get_rank()
open(f"{sys.argv[2]}/rank{rank}.json", "w").write(json.dumps(found))
torch.distributed.destroy_process_group()
"""


def test_ranks_augment_a_repeated_sample_differently(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, *launcher, str(program), str(folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    both = set(first) & set(second)
    assert both, "repeated samples come to both ranks"
    assert all(first[label] != second[label] for label in both)
