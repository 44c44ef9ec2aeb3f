"""The `feedline` command as the wheel installs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from making import HANG_SECONDS, PLAN

COMMAND = [sys.executable, "-m", "feedline"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    run("synth", str(folder / "train"), "--images", "20", "--classes", "2", "--size", "48-64")
    return folder


def run(*arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


def write_plan(folder: Path, more: str = "") -> str:
    path = folder / "plan.toml"
    path.write_text(PLAN.format(root=json.dumps(str(folder / "train")), more=more, settings=""))
    return str(path)


def test_run_counts_every_sample_and_json_is_one_document(folder: Path) -> None:
    result = json.loads(run("run", write_plan(folder), "--epochs", "3", "--json").stdout)
    assert result["samples"] == 60
    assert result["samples_per_second"] > 0
    assert 0 <= result["stall_share"] <= 1
    assert [op["samples"] >= 60 for op in result["snapshot"]["ops"]] == [True, True]


def test_run_takes_python_functions_by_name(folder: Path) -> None:
    (folder / "own_ops.py").write_text("def invert(image):\n    return 255 - image\n")
    plan = write_plan(folder, '[[ops]]\nop = "Map"\nfn = "own_ops:invert"\n')
    assert json.loads(run("run", plan, "--json", "--allow-functions", cwd=folder).stdout)["samples"] == 20


READ_PLANS = [
    ["run", "PLAN"], ["show", "PLAN", "out.png"], ["cost", "PLAN"], ["shuffle", "PLAN"], ["doctor", "PLAN"],
    ["offload", "PLAN"], ["verify", "PLAN"], ["index", "PLAN"], ["pack", "PLAN", "shards"],
]  # fmt: skip


@pytest.mark.parametrize("command", READ_PLANS, ids=[command[0] for command in READ_PLANS])
def test_no_command_runs_the_code_of_a_plan_unasked(command: list[str], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("open('was_imported', 'w').close()\ndef f(image):\n    return image\n")
    plan = write_plan(folder, '[[ops]]\nop = "Map"\nfn = "evil:f"\n')
    arguments = [plan if word == "PLAN" else word for word in command]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert not (tmp_path / "was_imported").exists()
    if command[0] not in ("index", "pack"):  # These commands use only the source of a plan.
        assert done.returncode == 1
        assert '"evil:f"' in done.stderr
        assert "--allow-functions" in done.stderr


def test_a_function_that_cannot_be_imported_is_named(folder: Path) -> None:
    plan = write_plan(folder, '[[ops]]\nop = "Map"\nfn = "no_such_module:f"\n')
    assert "no_such_module" in run("run", plan, "--allow-functions", code=1).stderr


def test_show_draws_a_picture(folder: Path) -> None:
    from PIL import Image

    out = folder / "grid.png"
    drawn = json.loads(run("show", write_plan(folder), str(out), "--samples", "6", "--json").stdout)
    with Image.open(out) as picture:
        assert picture.size == (drawn["width"], drawn["height"])
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 100


def test_synth_gives_the_same_pictures_again(folder: Path, tmp_path: Path) -> None:
    run("synth", str(tmp_path / "again"), "--images", "20", "--classes", "2", "--size", "48-64", "--workers", "3")
    first = sorted((folder / "train").rglob("*.jpg"))
    second = sorted((tmp_path / "again").rglob("*.jpg"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len(first) == 20


@pytest.mark.parametrize("command", ["run", "show", "pack", "verify", "synth", "demo"])
def test_help_has_examples(command: str) -> None:
    assert f"feedline {command}" in run(command, "--help").stdout.split("Examples")[1]


def test_errors_are_one_line_and_exit_1(folder: Path) -> None:
    plan = folder / "bad.toml"
    plan.write_text('batch_size = 4\nshufle = true\n[source]\nkind = "folder"\nroot = "train"\n')
    error = run("run", str(plan), code=1).stderr
    assert "shufle" in error
    assert "Traceback" not in error
    assert run("run", "no-such-plan.toml", code=1).stderr.startswith("error: ")
    run("no-such-command", code=2)


def test_ctrl_c_ends_a_run(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", write_plan(folder), "--epochs", "1000000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + HANG_SECONDS
    while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    try:
        process.communicate(timeout=HANG_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert time.monotonic() - started < HANG_SECONDS
