"""All who take part, by name, with their environments; to add one is to add its file and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.peers import dali, ffcv
from bench.peers.venvs import Environment
from bench.pictures import task

PREFIX = "pictures-"
FEEDLINE, TORCHVISION, PILLOW, DALI, FFCV = "feedline", "torchvision", "pillow", "dali", "ffcv"


@dataclass(frozen=True)
class Contender:
    """Where the code of a contender is, and what it needs."""

    module: str
    function: str = "build"
    environment: Environment | None = None

    def call(self, *arguments: str) -> None:
        """Run in its own process: measure a task, or describe contents."""
        module = importlib.import_module(f"bench.pictures.{self.module}")
        task.run(getattr(module, self.function), *arguments)


ALL = {
    FEEDLINE: Contender("loaders.feedline"),
    TORCHVISION: Contender("loaders.torch_loader", "build_torchvision"),
    PILLOW: Contender("loaders.torch_loader", "build_pillow"),
    DALI: Contender("loaders.dali", environment=dali.ENVIRONMENT),
}
OTHERS: dict[str, tuple[str, str, Environment | None]] = {
    "small-feedline": ("small", "contend_feedline", None),
    "small-torch": ("small", "contend_torch", None),
    "small-ffcv": ("small_ffcv", "contend", ffcv.ENVIRONMENT),
    "small-ffcv-file": ("small_ffcv", "convert", ffcv.ENVIRONMENT),
    "cold-feedline": ("cold", "contend_feedline", None),
    "cold-torch": ("cold", "contend_torch", None),
    "cold-dali": ("cold", "contend_dali", dali.ENVIRONMENT),
}
"""Contenders of rows with a measurement of their own: module, function, environment."""


def _call(module: str, function: str, *arguments: str) -> None:
    getattr(importlib.import_module(f"bench.pictures.{module}"), function)(*arguments)


CONTENDERS: dict[str, Callable[..., None]] = {
    **{PREFIX + name: contender.call for name, contender in ALL.items()},
    **{PREFIX + name: partial(_call, module, function) for name, (module, function, _) in OTHERS.items()},
}


def environment(name: str) -> Environment | None:
    """The environment of a contender; None stands for that of the benchmark."""
    return ALL[name].environment if name in ALL else OTHERS[name][2]
