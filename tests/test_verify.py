"""`feedline verify`: the laws on a plan with Python functions, through the command of the wheel."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from making import HANG_SECONDS, PLAN

COMMAND = [sys.executable, "-m", "feedline", "verify", "--allow-functions"]
OPS = """
import threading

import numpy as np


def invert(image):
    return 255 - image


def noise(image):
    return image + np.random.default_rng().integers(0, 9, image.shape, dtype=np.uint8)


def by_thread(image):
    return image + np.uint8(threading.get_ident() % 251)


def sometimes(image):
    if np.random.default_rng().random() < 0.5:
        raise ValueError("not today")
    return image
"""


def write_plan(root: Path, function: str | None = None, settings: str = "") -> Path:
    (root.parent / "own_ops.py").write_text(OPS)
    table = f'[[ops]]\nop = "Map"\nfn = "own_ops:{function}"\ndeterministic = true\n' if function else ""
    path = root.parent / "plan.toml"
    path.write_text(PLAN.format(root=json.dumps(str(root)), more=table, settings=settings))
    return path


def verify(plan: Path, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, str(plan), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=plan.parent)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def laws(plan: Path, *options: str, code: int = 0) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    report = json.loads(verify(plan, "--json", *options, code=code).stdout)
    assert report["passed"] == (code == 0)
    return {law["name"]: law for law in report["laws"]}, report


def test_a_sound_python_function_passes(pictures: Callable[..., Path]) -> None:
    found, report = laws(write_plan(pictures(20), "invert"))
    assert {law["verdict"] for name, law in found.items() if name != "offloaded = local"} == {"pass"}
    assert found["offloaded = local"]["verdict"] == "not applicable"
    assert (report["samples"], report["samples_of_epoch"], report["findings"]) == (20, 20, [])


def test_law_1_a_function_that_returns_noise_is_named_though_it_is_declared_deterministic(
    pictures: Callable[..., Path],
) -> None:
    plan = write_plan(pictures(20), "noise")
    found, report = laws(plan, code=1)
    broken = found["same stream"]["counterexample"]
    assert broken["law"] == 1
    assert broken["culprit"].startswith('Map("own_ops:noise"), op 2 of 3')
    assert broken["field"] == "image"
    assert broken["byte"] >= 0
    assert broken["expected"] != broken["found"]
    assert broken["configurations"] == ["1 worker", "2 workers"]
    assert broken["sample"].endswith(".png")
    assert [law["name"] for law in report["laws"] if law["verdict"] == "fail"] == ["same stream"]
    text = verify(plan, "--samples", "8", "--epochs", "1", code=1).stdout
    assert text.splitlines()[-1] == "broken: law 1 (same stream)"
    assert "own_ops:noise" in text


def test_law_1_a_function_that_depends_on_the_thread_is_named(pictures: Callable[..., Path]) -> None:
    found, _ = laws(write_plan(pictures(20), "by_thread"), code=1)
    assert "own_ops:by_thread" in found["same stream"]["counterexample"]["culprit"]


def test_law_1_a_function_that_fails_at_times_is_named(pictures: Callable[..., Path]) -> None:
    found, report = laws(write_plan(pictures(20), "sometimes"), code=1)
    assert [law["name"] for law in report["laws"] if law["verdict"] == "fail"] == ["same stream"]
    assert "own_ops:sometimes" in found["same stream"]["counterexample"]["culprit"]


def test_a_damaged_file_is_a_finding(pictures: Callable[..., Path]) -> None:
    root = pictures(20)
    (root / "cat" / "0099.png").write_bytes(b"not a picture")
    for settings in ("", "on_error = { max_fraction = 0.1 }", 'order = "arrival"'):
        found, report = laws(write_plan(root, settings=settings))
        assert [finding["sample"] for finding in report["findings"]] == ["cat/0099.png"]
        assert report["findings"][0]["path"] == str(root / "cat" / "0099.png")
        assert found["bad samples"]["verdict"] == "pass"


def test_law_1_offloaded_samples_are_compared_where_there_is_a_storage_server(
    serve: Callable[..., tuple[subprocess.Popen[str], str]], pictures: Callable[..., Path]
) -> None:
    root = pictures(16)
    _, address = serve(root.parent)
    plan = write_plan(root)
    plan.write_text(plan.read_text().replace(str(root), f"feedline://{address}/{root.name}"))
    found, _ = laws(plan, "--epochs", "1")
    assert found["offloaded = local"]["verdict"] == "pass"
    prepared = re.search(r"all \((\d+) prepared there\)", found["offloaded = local"]["detail"])
    assert prepared
    assert int(prepared[1]) >= 16


def test_ctrl_c_ends_it_at_once(pictures: Callable[..., Path]) -> None:
    plan = write_plan(pictures(20), "invert")
    plan.write_text(plan.read_text() + '[[ops]]\nop = "Delay"\ncosts_ms = [60000.0]\n')
    process = subprocess.Popen([*COMMAND, str(plan)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=plan.parent)
    deadline = time.monotonic() + HANG_SECONDS
    while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert time.monotonic() - started < HANG_SECONDS
