"""``promote`` against the real datasets of torch and torchvision: the same batches, or a reason why not."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from making import DTYPES, natural, save
from PIL import Image, ImageFile
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from torchvision import transforms as T
from torchvision.datasets import CIFAR10, CIFAR100, DatasetFolder, FakeData, ImageFolder
from torchvision.datasets.folder import default_loader, pil_loader
from torchvision.transforms import v2

import feedline as fl
import feedline.torch
from feedline import ops
from feedline.torch.native import promotable
from feedline.torch.native.promote import Promotion, Refusal, promote

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
VALIDATION = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)])
SMALL = T.Compose([T.Resize((24, 32)), T.ToTensor()])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of pictures of several formats and sizes. One is turned by its EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for number in range(4):
        save(tmp_path / f"data/cat/{number}.jpg", natural(60 + number, 80, number), quality=90)
        save(tmp_path / f"data/dog/deep/{number}.PNG", natural(50, 70 + number, number))
    save(tmp_path / "data/ant/turned.jpeg", natural(40, 60), exif=exif)
    save(tmp_path / "data/ant/grey.png", natural(40, 60, channels=1))
    save(tmp_path / "data/ant/alpha.webp", natural(40, 60, channels=4), lossless=True, exact=True)
    return tmp_path / "data"


def promoted(dataset: Any) -> Promotion:
    promotion = promote(dataset)
    assert isinstance(promotion, Promotion), promotion
    assert len(promotion) == len(dataset)
    assert promotion.is_current(dataset)
    return promotion


def batches(promotion: Promotion, **options: Any) -> list[list[Any]]:
    options = {"batch_size": 4, "framework": "torch", "fields": promotion.fields, "rank": 0, "world_size": 1} | options
    return [promotion.collate(batch) for batch in fl.Loader(promotion.source, promotion.ops, **options)]


def check(dataset: Any, std: tuple[float, ...] = (1.0,), tolerance: float = 1 / 255, order: Any = None) -> None:
    """Compare all batches with those of torch's DataLoader. ``std`` brings values back to the scale of [0, 1]."""
    promotion = promoted(dataset)
    indices = list(range(len(dataset))) if order is None else order
    found = batches(promotion, sampler=promotion.source_indices(indices))
    expected = list(DataLoader(dataset, batch_size=4, sampler=indices))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other) is list
        assert [(type(part), part.shape, part.dtype) for part in one] == [
            (type(part), part.shape, part.dtype) for part in other
        ]
        assert all(torch.equal(*pair) for pair in zip(one[1:], other[1:], strict=True))
        scale = torch.tensor(std).reshape(-1, 1, 1) / (255 if one[0].dtype == torch.uint8 else 1)
        difference = ((one[0].double() - other[0].double()).abs() * scale).max().item()
        assert difference <= tolerance + 1e-6, f"differs by {difference * 255:.2f}/255"


def reason(dataset: Any) -> str:
    refusal = promote(dataset)
    assert isinstance(refusal, Refusal), refusal
    assert "\n" not in refusal.reason
    return refusal.reason


def test_the_validation_chain_of_a_folder_gives_torchs_batches(root: Path) -> None:
    check(ImageFolder(root, VALIDATION), std=STD)


@pytest.mark.parametrize(
    "transform",
    [
        SMALL,
        T.Compose([T.Resize((24, 32)), T.PILToTensor()]),
        T.Compose([T.Resize((24, 32)), T.Grayscale(), T.ToTensor()]),
        v2.Compose([v2.ToImage(), v2.Resize((24, 32)), v2.ToDtype(torch.float32, scale=True)]),
        v2.Compose([v2.Resize((24, 32)), v2.ToImage()]),
        T.Compose([T.CenterCrop(40), T.RandomHorizontalFlip(1.0), T.ToTensor()]),
    ],
)
def test_a_folder_gives_torchs_batches(root: Path, transform: Any) -> None:
    check(ImageFolder(root, transform))
    check(ImageFolder(str(root), transform), order=[10, 3, 3, 0, 7])


@pytest.mark.parametrize("loader", [pil_loader, default_loader])
def test_a_dataset_folder_with_torchvisions_loader_gives_torchs_batches(root: Path, loader: Callable[..., Any]) -> None:
    check(DatasetFolder(root, loader, extensions=(".jpg", ".jpeg"), transform=SMALL, allow_empty=True))
    check(ImageFolder(root, SMALL, is_valid_file=lambda path: path.endswith(".jpg"), allow_empty=True))


def test_a_folder_without_shuffling_needs_no_sampler(root: Path) -> None:
    dataset = ImageFolder(root, SMALL)
    found = torch.cat([labels for _, labels in batches(promoted(dataset))])
    assert found.tolist() == dataset.targets


def test_files_are_not_opened(root: Path) -> None:
    dataset = ImageFolder(root, SMALL)
    shutil.rmtree(root)
    assert len(promoted(dataset)) == 11


def test_the_limit_of_pillow_for_large_pictures_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ImageFolder(root, SMALL)
    assert promoted(dataset).ops[0] == ops.DecodeImage(exif=False, mode="rgb")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(fl.SampleError, match="pixels"):
        batches(promoted(dataset))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    check(dataset)


def cifar(root: Path, kind: type[CIFAR10], monkeypatch: pytest.MonkeyPatch, transform: Any = SMALL) -> CIFAR10:
    """Write files in the format of CIFAR, with their checksums, and open them."""
    folder = root / kind.base_folder
    folder.mkdir(exist_ok=True)

    def write(name: str, content: dict[str, Any]) -> str:
        (folder / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    for part in ("train_list", "test_list"):
        listed = []
        for number, (name, _) in enumerate(getattr(kind, part)):
            pixels = np.stack([natural(32, 32, seed).transpose(2, 0, 1).ravel() for seed in range(number, number + 6)])
            labels = "labels" if kind is CIFAR10 else "fine_labels"
            listed.append([name, write(name, {"data": pixels, labels: [number, 1, 2, 3, 4, 5]})])
        monkeypatch.setattr(kind, part, listed)
    checksum = write(kind.meta["filename"], {kind.meta["key"]: [str(label) for label in range(10)]})
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": checksum})
    return kind(root, transform=transform)


CIFAR_CHAIN = T.Compose([T.Pad(4), T.ToTensor()])


@pytest.mark.parametrize("kind", [CIFAR10, CIFAR100])
def test_cifar_gives_torchs_batches(tmp_path: Path, kind: type[CIFAR10], monkeypatch: pytest.MonkeyPatch) -> None:
    transform = T.Compose([T.ToTensor(), T.Normalize((0.5,), (0.25,))])
    dataset = cifar(tmp_path, kind, monkeypatch, transform)
    check(dataset, tolerance=1e-5)
    check(dataset, tolerance=1e-5, order=[5, 1, 0])
    check(Subset(dataset, [3, 1, 4]), tolerance=1e-5)
    dataset.targets = np.array(dataset.targets)
    check(dataset, tolerance=1e-5)


def test_a_training_chain_of_cifar_pads_and_crops_as_torchvision(tmp_path: Path, monkeypatch: Any) -> None:
    transform = T.Compose([T.RandomCrop(40, padding=4), T.RandomHorizontalFlip(1.0), T.ToTensor()])
    check(cifar(tmp_path, CIFAR10, monkeypatch, transform))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_give_torchs_batches(dtype: str) -> None:
    data = torch.from_numpy(np.arange(7 * 6).reshape(7, 2, 3).astype(dtype))
    for tensors in ((data,), (data[:, 0, 0].clone(),), (data, torch.arange(7)), (data, data), (data, data[:, 0, 0])):
        if all(tensor.is_contiguous() for tensor in tensors):
            check(TensorDataset(*tensors), tolerance=0)
    check(TensorDataset(torch.zeros(7, 4, 5, 3, dtype=torch.uint8), torch.arange(7, dtype=torch.int32)))


def test_tensors_are_not_copied() -> None:
    data = torch.zeros(6, 2)
    promotion = promoted(TensorDataset(data))
    data += 1
    assert batches(promotion)[0][0].min() == 1


def test_subsets_keep_their_order_and_may_be_nested(root: Path) -> None:
    folder = ImageFolder(root, SMALL)
    check(Subset(folder, [7, 2, 2, 9, -1]))
    check(Subset(folder, range(1, 9, 2)))
    check(Subset(Subset(folder, np.array([7, 2, 9])), torch.tensor([2, 0])))
    tensors = TensorDataset(torch.arange(20.0), torch.arange(20))
    check(Subset(Subset(tensors, [9, 3, 17, -2]), [3, 0, -2]), tolerance=0)
    check(random_split(tensors, [15, 5])[0], tolerance=0)


def test_shuffling_a_subset_visits_its_samples() -> None:
    subset = Subset(TensorDataset(torch.arange(20.0), torch.arange(20)), [9, 3, 17])
    found = torch.cat([labels for _, labels in batches(promoted(subset), shuffle=True)])
    assert sorted(found.tolist()) == [3, 9, 17]


def test_folders_with_one_transform_can_be_concatenated(root: Path) -> None:
    folder = ImageFolder(root, SMALL)
    other = ImageFolder(root, T.Compose([T.Resize([24, 32]), T.ToTensor()]))
    check(ConcatDataset([folder, Subset(other, [4, 1, 1]), ConcatDataset([folder])]))
    check(Subset(ConcatDataset([folder, other]), [12, 3, -1, 3]))


def test_arrays_can_be_concatenated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (TensorDataset(torch.rand(5, 3) + number, torch.arange(5) + 10 * number) for number in range(2))
    check(ConcatDataset([first, Subset(second, [4, 0]), first]), tolerance=0)
    check(ConcatDataset([TensorDataset(torch.rand(2, 3)), TensorDataset(torch.rand(4, 3))]), tolerance=0)
    pictures = cifar(tmp_path, CIFAR10, monkeypatch, T.ToTensor())
    check(ConcatDataset([pictures, Subset(pictures, [2, 0])]), tolerance=1e-5)


def test_a_joined_array_that_changes_is_read_again() -> None:
    data = torch.zeros(4)
    dataset = ConcatDataset([TensorDataset(data), TensorDataset(torch.ones(2))])
    promotion = promoted(dataset)
    assert promotion.is_current(dataset)
    data += 1
    assert not promotion.is_current(dataset)


def test_indices_beyond_the_ends_are_refused(root: Path) -> None:
    promotion = promoted(ImageFolder(root, SMALL))
    assert promotion.source_indices([-1, torch.tensor(3), np.int64(2)]) == [10, 3, 2]
    for index in (11, -12):
        with pytest.raises(IndexError, match="no sample"):
            promotion.source_indices([0, index])


class Derived(ImageFolder):
    pass


class DerivedTensors(TensorDataset):
    pass


def my_loader(path: str) -> Any:
    return pil_loader(path)


def test_other_datasets_are_refused(root: Path) -> None:
    assert reason(Derived(root, SMALL)) == "Derived is a subclass of ImageFolder, and its code may differ"
    assert "subclass of TensorDataset" in reason(DerivedTensors(torch.zeros(2)))
    for dataset in (FakeData(), [1, 2, 3], None, object()):
        assert "is not one of ImageFolder, DatasetFolder, CIFAR10" in reason(dataset)
    assert "subclass of ImageFolder" in reason(Subset(Derived(root, SMALL), [1]))
    assert "subclass of ImageFolder" in reason(ConcatDataset([ImageFolder(root, SMALL), Derived(root, SMALL)]))


def folder_with(**attributes: Any) -> Callable[[Path], Any]:
    def make(root: Path) -> Any:
        dataset = ImageFolder(root, SMALL)
        for name, value in attributes.items():
            setattr(dataset, name, value)
        return dataset

    return make


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (folder_with(loader=my_loader), "ImageFolder has its own loader, 'my_loader'"),
        (folder_with(target_transform=str), "ImageFolder has a target_transform"),
        (folder_with(transform=None), "has no transform, and PIL pictures cannot be collated"),
        (folder_with(transform=T.Resize(8)), "returns PIL pictures"),
        (folder_with(transform=CIFAR_CHAIN), "Pad.* is not native: Feedline has no such op"),
        (folder_with(transform=lambda picture: picture), "not native: it is not a transform of torchvision itself"),
        (folder_with(__getitems__=lambda indices: []), "this ImageFolder has its own __getitems__"),
        (folder_with(samples=[]), "ImageFolder has no samples"),
        (folder_with(samples=[("a.tif", 0)]), "'a.tif' is not a file of .jpg, "),
        (folder_with(samples=[("a.pgm", 0)]), "'a.pgm' is not a file of .jpg, "),
        (folder_with(samples=[("~a.jpg", 0)]), "'~a.jpg' is a name with a special meaning"),
        (folder_with(samples=[("s3://a.jpg", 0)]), "special meaning"),
        (folder_with(samples=[(Path("a.jpg"), 0)]), "is not text"),
        (folder_with(samples=[("a.jpg", 0.5)]), "labels that are not plain whole numbers"),
        (folder_with(samples=[("a.jpg", True)]), "labels that are not plain whole numbers"),
        (folder_with(samples=3), "ImageFolder cannot be examined: TypeError"),
    ],
)
def test_a_folder_that_needs_python_is_refused_with_the_reason(root: Path, make: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        raise ValueError(reason(make(root)))


def test_a_class_whose_method_was_replaced_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatasetFolder, "__getitem__", lambda self, index: (index, index))
    assert reason(ImageFolder(root, SMALL)) == "ImageFolder.__getitem__ was replaced by test_torch_native"


def test_settings_of_torchvision_and_pillow_are_respected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ImageFolder(root, SMALL)
    monkeypatch.setattr(torchvision, "_image_backend", "accimage")
    assert reason(dataset) == "torchvision decodes with accimage, not with PIL"
    monkeypatch.setattr(torchvision, "_image_backend", "PIL")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert "LOAD_TRUNCATED_IMAGES" in reason(dataset)


class Named(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ([torch.zeros(3), torch.zeros(3), torch.zeros(3)], "TensorDataset has 3 tensors"),
        ([torch.zeros(3, 2).T], "not contiguous"),
        ([torch.zeros(3, dtype=torch.bfloat16)], "NumPy cannot read"),
        ([torch.zeros(3, dtype=torch.complex64)], "elements of torch.complex64"),
        ([torch.zeros(3, dtype=torch.complex64).conj()], "NumPy cannot read"),
        ([torch.zeros(3, requires_grad=True)], "requires a gradient"),
        ([torch.zeros(3, 3).to_sparse()], "not a dense tensor"),
        ([torch.zeros(3, device="meta")], "memory of the CPU"),
        ([torch.zeros(3).as_subclass(Named)], "a Named, not a plain torch.Tensor"),
        ([torch.zeros(0)], "no elements"),
        ([torch.zeros(3), torch.zeros(3, 0)], "no elements"),
        ([torch.zeros(2), torch.zeros(2, 9 * 2**20)], "too many to copy"),
    ],
)
def test_tensors_that_need_python_are_refused_with_the_reason(tensors: list[Any], expected: str) -> None:
    assert expected in reason(TensorDataset(*tensors))


TENSORS = TensorDataset(torch.zeros(5), torch.zeros(5))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Subset(TENSORS, [1, 1]), "Subset has repeated indices of an array"),
        (Subset(TENSORS, [4, -1]), "Subset has repeated indices of an array"),
        (Subset(TENSORS, [5]), "Subset has indices outside of its 5 samples"),
        (Subset(TENSORS, [-6]), "Subset has indices outside of its 5 samples"),
        (Subset(TENSORS, [0.5]), "Subset.indices is [0.5], not a list of whole numbers"),
        (Subset(TENSORS, [True]), "not a list of whole numbers"),
        (Subset(TENSORS, [[1]]), "not a list of whole numbers"),
        (Subset(TENSORS, []), "Subset has no samples"),
        (ConcatDataset([TENSORS, TensorDataset(torch.zeros(5))]), "ConcatDataset differ in shape or dtype"),
        (ConcatDataset([TENSORS, TensorDataset(torch.zeros(5), torch.zeros(5).int())]), "differ in shape or dtype"),
    ],
)
def test_parts_that_need_python_are_refused_with_the_reason(dataset: Any, expected: str) -> None:
    assert expected in reason(dataset)


def test_arrays_too_large_to_copy_are_not_concatenated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotable, "LARGEST_JOINED", 40)
    check(ConcatDataset([TensorDataset(torch.zeros(5))] * 2), tolerance=0)
    too_large = ConcatDataset([TensorDataset(torch.zeros(11)), TensorDataset(torch.zeros(5))])
    assert reason(too_large) == "ConcatDataset joins arrays of 64 bytes, too many to copy them into one"


def test_files_and_arrays_are_not_concatenated(root: Path) -> None:
    assert reason(ConcatDataset([ImageFolder(root, SMALL), TENSORS])) == "ConcatDataset joins files and arrays"


def test_folders_with_different_transforms_are_not_concatenated(root: Path) -> None:
    folders = [ImageFolder(root, SMALL), ImageFolder(root, VALIDATION)]
    assert reason(ConcatDataset(folders)) == "the datasets of ConcatDataset have different transforms"
    joined = ConcatDataset([folders[0]])
    folders[0].samples.pop()
    assert reason(joined) == "a dataset of ConcatDataset has changed its length"


def test_cifar_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = cifar(tmp_path, CIFAR10, monkeypatch)
    targets, dataset.targets = dataset.targets, dataset.targets[1:]
    assert reason(dataset) == "CIFAR10 has 30 pictures, but 29 targets"
    dataset.targets = [float(target) for target in targets]
    assert "labels that are not plain whole numbers" in reason(dataset)
    dataset.data = dataset.data.astype(np.float32)
    assert "CIFAR10.data is not a uint8 array" in reason(dataset)


def test_a_dataset_that_raises_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ImageFolder(root, SMALL)
    del dataset.samples
    assert "cannot be examined: AttributeError" in reason(dataset)
    endless = T.Compose([])
    endless.transforms = [endless]
    assert "cannot be examined: RecursionError" in reason(folder_with(transform=endless)(root))


def test_a_promotion_notices_that_the_dataset_changed(root: Path) -> None:
    changes: list[Callable[[Any], None]] = [
        lambda dataset: setattr(dataset, "transform", VALIDATION),
        lambda dataset: dataset.transform.transforms.pop(),
        lambda dataset: setattr(dataset, "loader", pil_loader),
        lambda dataset: dataset.samples.pop(),
        lambda dataset: dataset.samples.__setitem__(0, dataset.samples[1]),
        lambda dataset: delattr(dataset, "samples"),
    ]
    for change in changes:
        dataset = ImageFolder(root, T.Compose([T.Resize((24, 32)), T.ToTensor()]))
        for outer in (dataset, Subset(dataset, [1, 2]), ConcatDataset([dataset])):
            promotion = promoted(outer)
        change(dataset)
        assert not promotion.is_current(outer)
    labels = torch.zeros(5)
    tensors = TensorDataset(torch.zeros(5), labels)
    promotion = promoted(tensors)
    labels[2] = 1
    assert not promotion.is_current(tensors)
    subset = Subset(tensors, [1, 2])
    promotion = promoted(subset)
    subset.indices[0] = 3
    assert not promotion.is_current(subset)


def test_pictures_of_different_sizes_raise_the_error_of_torch(root: Path) -> None:
    loader = fl.torch.DataLoader(ImageFolder(root, T.ToTensor()), batch_size=4, num_workers=2)
    assert loader.explain().startswith("native: ")
    with pytest.raises(
        RuntimeError, match=r"stack expects each tensor to be equal size.*make all sizes equal in the transform"
    ):
        list(loader)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sampler_without_an_end_needs_python(workers: int) -> None:
    dataset = TensorDataset(torch.arange(4))
    loader = fl.torch.DataLoader(dataset, batch_size=2, sampler=itertools.cycle([1, 3, 2]), num_workers=workers)
    assert "its sampler has no length" in loader.explain()
    assert [batch[0].tolist() for batch in itertools.islice(loader, 3)] == [[1, 3], [2, 1], [3, 2]]


class DrawsEach(Sampler[int]):
    """Draws from global generators for each index."""

    def __len__(self) -> int:
        return 7

    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(20, ())) + random.randrange(20) for _ in range(7))


@pytest.mark.parametrize("sampler", [DrawsEach(), WeightedRandomSampler([1.0] * 40, 7), SubsetRandomSampler(range(40))])
def test_a_sampler_gives_the_same_order_with_and_without_native_samples(sampler: Sampler[int]) -> None:
    dataset = TensorDataset(torch.arange(40))
    before = torch.get_rng_state(), random.getstate()
    native, python = (
        fl.torch.DataLoader(dataset, 2, sampler=sampler, num_workers=1, seed=5, native=native)
        for native in ("auto", False)
    )
    for _ in range(2):
        expected = [batch[0].tolist() for batch in python]
        assert [batch[0].tolist() for batch in native] == expected
    assert native.explain().startswith("native: ")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_torchvision_is_not_imported(run_python: Callable[..., str]) -> None:
    code = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from feedline.torch.native import promotable
from feedline.torch.native.promote import promote
from feedline.torch.native.conversion import native_ops
print(promote(torch.utils.data.TensorDataset(torch.zeros(3))).fields, promote([1]).reason[:13])
print(native_ops(len).report[0].op, "torchvision" in sys.modules, "PIL" in sys.modules)
"""
    out = run_python(code, Path(fl.__file__).parent.parent)
    assert out.splitlines() == ["('data',) builtins.list", "Python function False False"]
