"""The examples of the documentation run, every public name is documented, and the site is complete."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import feedline as fl
import feedline.torch
from feedline import ops, testing

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools/docs"))

from page_examples import NOT_RUN, blocks, pages, prepare, program, run_page  # noqa: E402
from public_names import documented, has_docstring, has_example, public_names  # noqa: E402

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [page for page in pages() if program(page.read_text()).strip()]
NAMES = public_names()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    prepare(folder)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, data: Path) -> None:
    run_page(page, data)


def test_a_page_says_why_a_block_is_not_run() -> None:
    reasons = [found["reason"] for page in pages() for found in NOT_RUN.finditer(page.read_text())]
    left_out = sum(not block.is_run for page in pages() for block in blocks(page.read_text()))
    assert left_out == len(reasons)
    assert all(len(reason.split()) > 2 for reason in reasons)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_program_of_examples_runs(example: Path, data: Path) -> None:
    command = [sys.executable, str(example), str(data / "data/train")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_examples_of_docstrings_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    monkeypatch.setenv("FEEDLINE_CACHE", str(data / "cache"))
    job = fl.Loader(fl.synthetic(256, (16,)), [testing.delay(2.0)], batch_size=8, num_workers=1)
    given = {
        "fl": fl,
        "ops": ops,
        "np": np,
        "testing": testing,
        "loader": job,
        "torch_loader": [[1, 2]] * 4,
        "train_step": lambda batch: time.sleep(0.002),
        "feedline": fl,
        "torch": torch,
    }
    tried = 0
    modules = ["feedline", *(found.name for found in pkgutil.walk_packages(fl.__path__, "feedline."))]
    for name in modules:
        if name not in ("feedline.__main__", "feedline._feedline"):
            module = importlib.import_module(name)
            result = doctest.testmod(
                module, extraglobs=given, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            )
            assert result.failed == 0, name
            tried += result.attempted
    job.close()
    assert tried > 10


def test_no_example_of_a_docstring_is_skipped() -> None:
    skipped = {path.name: path.read_text().count("doctest: +SKIP") for path in (ROOT / "python/feedline").rglob("*.py")}
    assert {name: count for name, count in skipped.items() if count} == {}


def test_every_public_name_has_a_docstring() -> None:
    assert [name.path for name in NAMES if not has_docstring(name)] == []


def test_every_public_name_stands_in_the_reference() -> None:
    places = documented()
    assert [name.path for name in NAMES if name.documented_as not in places] == []


def test_every_public_name_has_an_example_that_runs() -> None:
    places = documented()
    assert [name.path for name in NAMES if not has_example(name, places)] == []


def test_the_plan_of_the_command_line_page_opens(data: Path) -> None:
    text = re.search(r"```toml\n(.*?)```", (ROOT / "docs/reference/command-line.md").read_text(), re.DOTALL)
    assert text is not None
    with fl.Loader.from_plan(fl.Plan.from_toml(text[1].replace("data/train", str(data / "data/train")))) as loader:
        assert next(iter(loader))["image"].shape == (64, 3, 224, 224)


def test_pictures_are_what_the_committed_results_give() -> None:
    command = [sys.executable, "tools/docs/pictures.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning, such as a link or an anchor that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    # With --quiet mkdocs would not see its own warnings, and --strict would let everything pass.
    assert "Documentation built" in done.stderr
    return folder


def test_the_site_asks_no_other_host(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=\"?(https?:[^\" >]+)")
    found = list(site.rglob("*.html"))
    assert len(found) > 50
    assert {page.name: loaded.findall(page.read_text()) for page in found if loaded.search(page.read_text())} == {}


def test_search_works_from_a_file(site: Path, browser: Any) -> None:
    browser.get_log("browser")
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.getElementById('__search').click()")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("reservoir")
    results = WebDriverWait(browser, 30).until(
        lambda browser: browser.find_elements(By.CSS_SELECTOR, ".md-search-result__item a")
    )
    assert any("sequential-reads.html" in result.get_attribute("href") for result in results)
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
