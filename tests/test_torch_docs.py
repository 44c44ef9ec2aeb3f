"""docs/concepts/torch-dataloader.md names a test for each behaviour of torch, and the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_about_torch_names_tests_that_exist() -> None:
    page = (ROOT / "docs/concepts/torch-dataloader.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    found = {
        name for path in ROOT.glob("tests/test_torch_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 40
    assert named <= found, sorted(named - found)
