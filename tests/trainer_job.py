"""A small training job for tests/test_torch_trainers.py: `trainer_job.py TRAINER FOLDER [STOP | resume]`.

Each rank writes the batches that it saw and its final weights to FOLDER as JSON. With STOP it kills itself with SIGKILL
at that step. With "resume" it continues from the last checkpoint in FOLDER.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

import feedline.torch

SAMPLES, BATCH = 44, 4


class Numbers(Dataset[Any]):
    """Sample `i` is a noisy `i`, made only in worker processes."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        assert get_worker_info() is not None, "a worker makes every sample"
        return {"x": torch.full((3,), float(index)) + torch.rand(()), "labels": torch.tensor(index)}


def make_loader(**options: Any) -> feedline.torch.DataLoader[Any]:
    return feedline.torch.DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=2, seed=5, **options)


class Record:
    """What a rank saw."""

    def __init__(self, folder: Path, stop: int | None) -> None:
        self.folder, self.stop, self.seen = folder, stop, []  # type: ignore[var-annotated]

    def step(self, labels: torch.Tensor) -> None:
        if self.stop is not None and len(self.seen) == self.stop:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(labels.tolist())

    def write(self, rank: int, weight: torch.Tensor, samples: int) -> None:
        found = {"seen": self.seen, "weight": weight.flatten().tolist(), "samples": samples}
        (self.folder / f"rank{rank}.json").write_text(json.dumps(found))


def loss_of(layer: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return ((layer(batch["x"]) - batch["labels"][:, None].float()) ** 2).mean()


def torchrun(record: Record, resume: bool) -> None:
    """A loop of one's own with DistributedDataParallel, started by torchrun."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    sampler = torch.utils.data.DistributedSampler(Numbers(), shuffle=True)
    loader = feedline.torch.DataLoader(
        Numbers(), batch_size=BATCH, sampler=sampler, num_workers=2, seed=5, persistent_workers=True
    )
    optimizer = torch.optim.SGD(layer.parameters(), 1e-4)
    path, epoch = record.folder / f"rank{rank}.pt", 0
    if resume:
        saved = torch.load(path)
        layer.load_state_dict(saved["layer"])
        loader.load_state_dict(saved["loader"])
        epoch = saved["epoch"]
    for number in range(epoch, 2):
        sampler.set_epoch(number)
        for batch in loader:
            record.step(batch["labels"])
            optimizer.zero_grad()
            loss_of(layer, batch).backward()
            optimizer.step()
            if len(record.seen) == 4:
                torch.save({"layer": layer.state_dict(), "loader": loader.state_dict(), "epoch": number}, path)
    record.write(rank, next(layer.parameters()), loader.snapshot()["samples"])


def lightning(record: Record, resume: bool, devices: int = 1) -> None:
    import lightning as pl

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            record.step(batch["labels"])
            return loss_of(self.layer, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-4)

    saving = pl.pytorch.callbacks.ModelCheckpoint(
        record.folder, filename="{step}", every_n_train_steps=4, save_top_k=-1
    )
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    checkpoint = str(record.folder / "step=4.ckpt") if resume else None
    trainer.fit(model, make_loader(persistent_workers=True), ckpt_path=checkpoint, weights_only=False)
    record.write(trainer.global_rank, model.layer.weight, trainer.train_dataloader.snapshot()["samples"])


def accelerate(record: Record, resume: bool) -> None:
    import accelerate as hf

    accelerator = hf.Accelerator(cpu=True)
    model = torch.nn.Linear(3, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-4))
    loader = feedline.torch.prepare(accelerator, make_loader(persistent_workers=True))
    accelerator.register_for_checkpointing(loader)
    epoch = 0
    if resume:
        accelerator.load_state(str(record.folder / "state"))
    while loader.base_dataloader.state_dict()["epoch"] < 2:
        for batch in loader:
            record.step(batch["labels"])
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            if len(record.seen) == 4 and epoch == 0 and not resume:
                accelerator.save_state(str(record.folder / "state"))
        epoch += 1
    record.write(0, model.weight, loader.snapshot()["samples"])


def hugging_face(record: Record, resume: bool) -> None:
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            record.step(labels)
            return {"loss": loss_of(self.layer, {"x": x, "labels": labels})}

    class Trainer(feedline.torch.TrainerMixin, transformers.Trainer):
        pass

    arguments = transformers.TrainingArguments(
        str(record.folder), num_train_epochs=2, per_device_train_batch_size=BATCH, save_steps=4, report_to=[],
        dataloader_num_workers=2, dataloader_persistent_workers=True, use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=Numbers())
    trainer.train(resume_from_checkpoint=str(record.folder / "checkpoint-4") if resume else None)
    loader = trainer.callback_handler.train_dataloader.base_dataloader
    record.write(0, trainer.model.layer.weight, loader.snapshot()["samples"])


class Pairs(Numbers):
    """The same samples as Keras takes them."""

    def __getitem__(self, index: int) -> Any:
        return tuple(super().__getitem__(index).values())


def keras(record: Record, backend: str) -> None:
    """`model.fit` of Keras. It continues from a checkpoint in the folder by itself."""
    os.environ["KERAS_BACKEND"] = backend
    import keras as k

    import feedline.keras

    assert k.backend.backend() == backend
    given: list[torch.Tensor] = []

    class Recorded(feedline.keras.PyDataset):
        def __getitem__(self, index: int) -> Any:
            batch = super().__getitem__(index)
            given.append(batch[1])
            return batch

    class Recording(k.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            given.clear()  # Keras took a batch to learn the shapes.

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            record.step(given.pop(0))

    k.utils.set_random_seed(0)
    loader: Any = feedline.torch.DataLoader(
        Pairs(), batch_size=BATCH, shuffle=True, num_workers=2, seed=5, persistent_workers=True
    )
    train = Recorded(loader)
    model = k.Sequential([k.layers.Dense(1)])
    model.compile(k.optimizers.SGD(1e-4, momentum=0.9), "mse")
    checkpoint = feedline.keras.Checkpoint(record.folder / "keras", train, every=4)
    model.fit(train, epochs=2, initial_epoch=checkpoint.epoch, callbacks=[checkpoint, Recording()], verbose=0)
    weight = torch.tensor(k.ops.convert_to_numpy(model.layers[0].kernel))
    record.write(0, weight, loader.snapshot()["samples"])


def timm(record: Record, resume: bool) -> None:
    """timm's dataset, loader, model and optimizer. The pictures are files, and the class of each is its number."""
    import numpy as np
    import timm as t
    import timm.optim
    from PIL import Image

    from feedline.torch.timm import create_loader

    pictures = record.folder / "pictures"
    for number in range(SAMPLES):
        file = pictures / f"{number:02}" / "picture.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(file)
    dataset = t.data.create_dataset("", root=str(pictures), is_training=True)
    # Random erasing takes place in this process.
    loader = create_loader(
        dataset, (3, 32, 32), batch_size=BATCH, is_training=True, num_workers=2, device=torch.device("cpu"),
        re_prob=0.5, auto_augment="rand-m9-mstd0.5", seed=5,
    )  # fmt: skip
    model = t.create_model("test_resnet", num_classes=SAMPLES)
    optimizer = t.optim.create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9)
    path, epoch = record.folder / "timm.pt", 0
    if resume:
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        epoch = saved["epoch"]
    for number in range(epoch, 2):
        for images, labels in loader:
            record.step(labels)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if len(record.seen) == 4:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(states | {"loader": loader.state_dict(), "epoch": number}, path)
    weight = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    record.write(0, weight, loader.snapshot()["samples"])


TRAINERS: dict[str, Any] = {
    "torchrun": torchrun,
    "lightning": lightning,
    "lightning-ddp": lambda record, resume: lightning(record, resume, devices=2),
    "accelerate": accelerate,
    "hugging-face": hugging_face,
    "timm": timm,
    "keras-torch": lambda record, resume: keras(record, "torch"),
    "keras-jax": lambda record, resume: keras(record, "jax"),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    name, folder, *rest = sys.argv[1:]
    is_resumed = rest == ["resume"]
    TRAINERS[name](Record(Path(folder), int(rest[0]) if rest and not is_resumed else None), is_resumed)
