"""The page of a node, in a real browser: a real node, two real jobs that share."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import WAIT, kill, look, start_node
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

# A job in its own process. It reads at a steady pace until it is stopped.
JOB = """
import sys, time
import feedline as fl
from feedline import ops
loader = fl.Loader(
    fl.synthetic(4096, (24, 24, 3)), [ops.RandomCrop(8, on="data")], batch_size=16, shuffle=True, share=sys.argv[1]
)
print("ready", flush=True)
while True:
    for batch in loader:
        time.sleep(0.01)
"""


class Node:
    """A node in its own process, with pages."""

    def __init__(self, socket: Path, http: str = "127.0.0.1:0") -> None:
        self.process = start_node(socket, "--http", http)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        found = re.search(r"http://([\d.:]+)/", said)
        assert found, said
        self.address = found.group(1)
        self.url = f"http://{self.address}/"

    def kill(self) -> None:
        kill(self.process)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=WAIT) as answer:
            return str(answer.read().decode())


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "node.sock"


@pytest.fixture
def node(socket: Path) -> Iterator[Node]:
    node = Node(socket)
    yield node
    node.kill()


@pytest.fixture
def jobs(socket: Path, node: Node, start_python: Callable[..., subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    jobs = [start_python(JOB, socket) for _ in range(2)]
    for job in jobs:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n", job.communicate()[1]
    return jobs


class Page:
    """The page in a browser."""

    def __init__(self, browser: webdriver.Chrome, node: Node, wait_until: Callable[..., None]) -> None:
        self.browser, self.wait = browser, wait_until
        browser.get(node.url)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def script(self, code: str, *arguments: Any) -> Any:
        return self.browser.execute_script(code, *arguments)

    def state(self) -> str:
        return str(self.script("return document.getElementById('status').dataset.state"))

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        self.wait(is_so, what)

    def problems(self) -> list[str]:
        log = self.browser.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture
def page(browser: webdriver.Chrome, node: Node, wait_until: Callable[..., None]) -> Iterator[Page]:
    browser.set_window_size(1100, 900)
    page = Page(browser, node, wait_until)
    yield page
    # The page must not poll a node that has ended, because its error would appear in the next test.
    browser.get("about:blank")
    page.problems()


def number(text: str) -> float:
    found = re.match(r"[\d,.]+", text)
    return float(found.group().replace(",", "")) if found else 0.0


def test_the_page_shows_jobs_that_share_and_draws_how_fast_they_are(
    page: Page, node: Node, jobs: list[subprocess.Popen[str]]
) -> None:
    page.wait_for(lambda: page.text("#jobs-count") == "2", "both jobs are shown")
    page.wait_for(lambda: number(page.text("#delivered")) > 100, "samples are delivered")
    page.wait_for(lambda: number(page.text("#shared")) > 1.5, "each sample is read about twice")
    assert page.text("#runs-count") == "1"
    assert number(page.text("#memory")) > 0
    assert "of 64.0 MB" in page.text("#memory-limit")
    processes = page.script("return [...document.querySelectorAll('.jobs tbody th')].map(cell => cell.innerText)")
    assert sorted(processes) == sorted(str(job.pid) for job in jobs)
    causes = page.script("return [...document.querySelectorAll('[data-cause]')].map(cell => cell.innerText)")
    assert causes == ["start", "read", "prepare", "memory"]
    assert number(page.text(".stalls tbody tr:first-child [data-total]")) >= 0
    before = page.text(".jobs tbody")
    page.wait_for(lambda: page.text(".jobs tbody") != before, "numbers change")

    def points() -> int:
        line = page.script("return document.querySelector('#plot path.delivered')?.getAttribute('d') ?? ''")
        return len(re.findall(r"[\d.]+,[\d.]+", line))

    page.wait_for(lambda: points() >= 4, "the plot is drawn")
    length = page.script("return document.querySelector('#plot path.produced').getTotalLength()")
    assert length > 5
    assert "delivered" in page.script("return document.getElementById('plot').getAttribute('aria-label')")
    jobs[0].kill()
    page.wait_for(lambda: page.text("#jobs-count") == "1", "a job that has gone is gone")
    assert page.problems() == []


def test_the_page_fits_a_phone_and_every_control_is_reached_by_the_keyboard(
    page: Page, jobs: list[subprocess.Popen[str]]
) -> None:
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        page.wait_for(lambda: page.text("#jobs-count") == "2", "both jobs are shown")
        page.wait_for(lambda: number(page.text("#delivered")) > 0, "samples are delivered")
        assert page.script("return window.innerWidth") == 360
        assert page.script("return document.documentElement.scrollWidth") <= 360
        cut = """return [...document.querySelectorAll('main *')].filter(element => {
            const { right, width } = element.getBoundingClientRect();
            return width > 0 && right > 360;
        }).map(element => element.outerHTML.slice(0, 80))"""
        assert page.script(cut) == []
        reached = []
        for _ in range(4):
            page.browser.switch_to.active_element.send_keys(Keys.TAB)
            reached.append(page.browser.switch_to.active_element.text)
            assert page.script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert reached == ["Pause", "stats (JSON)", "metrics (Prometheus)", "health"]
        pause = page.browser.find_element(By.ID, "pause")
        pause.send_keys(Keys.ENTER)
        assert page.state() == "paused"
        pause.send_keys(Keys.SPACE)
        page.wait_for(lambda: page.state() == "live", "it goes on")
        assert page.script("return document.activeElement.id") == "pause"
        assert page.problems() == []
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page: Page, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    contrast = """
        const parts = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = colour => {
            const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            const [r, g, b] = parts(colour).map(c => linear(c / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ground = light(getComputedStyle(document.querySelector('#summary')).backgroundColor);
        return ['#summary dd', '#summary dt', '#summary small', 'footer a', '#idle h2'].map(selector => {
            const ink = light(getComputedStyle(document.querySelector(selector)).color);
            return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
        });
    """
    assert min(page.script(contrast)) > 4.5
    dark = page.script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 60)")
    assert dark == (scheme == "dark")


def test_the_page_says_when_the_node_is_gone_and_when_it_is_back(
    page: Page, socket: Path, node: Node, jobs: list[subprocess.Popen[str]]
) -> None:
    page.wait_for(lambda: page.text("#jobs-count") == "2", "both jobs are shown")
    assert page.state() == "live"
    assert page.problems() == []
    node.kill()
    page.wait_for(lambda: page.state() == "gone", "the page says that the node is gone")
    assert "The node has not answered since" in page.text("#status")
    assert page.script("return document.title").startswith("gone")
    again = Node(socket, node.address)
    try:
        page.wait_for(lambda: page.state() == "live", "the page goes on with the next node")
        page.wait_for(lambda: page.text("#jobs-count") == "0", "the jobs of the last one are not shown")
        assert page.text("#idle h2") == "No job is attached"
        assert page.script("return document.querySelectorAll('.run').length") == 0
    finally:
        again.kill()
    refused = [problem for problem in page.problems() if "ERR_CONNECTION" not in problem]
    assert refused == [], "only the lost connection is complained about"


def test_the_numbers_of_the_pages_are_those_of_top(
    socket: Path, node: Node, jobs: list[subprocess.Popen[str]], wait_until: Callable[..., None]
) -> None:
    wait_until(lambda: len(json.loads(node.get("stats"))["jobs"]) == 2, "both jobs are on")
    top = look(socket)
    stats = json.loads(node.get("stats"))

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shape(inner) for name, inner in value.items()}
        return [shape(inner) for inner in value] if isinstance(value, list) else type(value)

    assert shape(stats) == shape(top)
    assert [run["key"] for run in stats["runs"]] == [run["key"] for run in top["runs"]]
    metrics = node.get("metrics")
    for job in top["jobs"]:
        assert f'job="{job["job"]}",process="{job["process"]}"' in metrics
    found = re.search(r"feedline_node_delivered_samples_total\{[^}]*\} (\d+)", metrics)
    assert found
    assert int(found.group(1)) >= stats["runs"][0]["leased_samples"]
    command = [sys.executable, "-m", "feedline", "top", "--once", "--socket", str(socket)]
    seen = subprocess.run(command, capture_output=True, text=True)
    assert "jobs wait for: start" in seen.stdout, seen.stderr
