"""What documents show runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="session")
def synth_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "train"
    command = [sys.executable, "-m", "feedline", "synth", str(folder), "--images", "240", "--classes", "3"]
    subprocess.run([*command, "--size", "64-128"], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, synth_folder: Path) -> None:
    command = [sys.executable, str(example), str(synth_folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_pipeline_of_the_readme_runs(synth_folder: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    program = code.group(1).replace("data/train", str(synth_folder)).replace("range(3)", "range(1)")
    program += '\nassert batch["image"].shape[1:] == (3, 224, 224) and batch["label"].dtype == "int64"\n'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_plan_of_the_guide_opens(synth_folder: Path) -> None:
    import feedline as fl

    text = re.search(r"```toml\n(.*?)```", (ROOT / "docs/reference/command-line.md").read_text(), re.DOTALL)
    assert text is not None
    loader = fl.Loader.from_plan(fl.Plan.from_toml(text.group(1).replace("data/train", str(synth_folder))))
    assert next(iter(loader))["image"].shape == (64, 3, 224, 224)
    loader.close()
