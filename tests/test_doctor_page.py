"""The page of the doctor, in a real browser: plots are drawn, keys and pointer work, it fits a phone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import feedline as fl
from feedline import testing


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examine a job once."""
    path = tmp_path_factory.mktemp("doctor") / "doctor.html"
    with fl.Loader(fl.synthetic(256, (16,)), [testing.delay(6.0)], batch_size=4, num_workers=2) as loader:
        fl.doctor(loader, lambda _: time.sleep(0.004), seconds=1.5, tables=True).save_html(path)
    return path


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    browser.set_window_size(1100, 900)
    browser.get_log("browser")
    browser.get(page.as_uri())
    yield browser
    problems = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert problems == []


def ink(browser: Any, canvas: str) -> int:
    """How many different colours a plot has."""
    return int(
        browser.execute_script(
            """
            const canvas = document.getElementById(arguments[0]);
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const colours = new Set();
            for (let i = 0; i < data.length; i += 4) {
              if (data[i + 3] > 200) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
            }
            return colours.size;
            """,
            canvas,
        )
    )


def test_plots_are_drawn_and_the_verdict_is_at_the_top(opened: Any) -> None:
    assert "preparing" in opened.find_element(By.CLASS_NAME, "verdict").text
    assert ink(opened, "log") >= 2
    assert ink(opened, "life") >= 3
    assert int(opened.find_element(By.ID, "life").get_attribute("data-spans")) > 100
    assert len(opened.find_elements(By.TAG_NAME, "svg")) == 2
    assert len(opened.find_elements(By.CSS_SELECTOR, ".bars .bar")) == 7


def test_what_is_under_the_pointer_is_told(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    life = opened.find_element(By.ID, "life")
    ActionChains(opened).move_to_element(life).perform()
    assert "thread" in opened.find_element(By.ID, "life-told").text
    log = opened.find_element(By.ID, "log")
    ActionChains(opened).move_to_element(log).perform()
    assert "waited" in opened.find_element(By.ID, "log-told").text


def test_keys_zoom_and_move_and_buttons_do_too(opened: Any) -> None:
    life = opened.find_element(By.ID, "life")
    whole = float(life.get_attribute("data-shown"))
    opened.execute_script("arguments[0].focus()", life)
    life.send_keys("+", "+", Keys.ARROW_RIGHT)
    assert float(life.get_attribute("data-shown")) < 0.7 * whole
    assert "ms" in opened.find_element(By.ID, "life-told").text
    life.send_keys("0")
    assert float(life.get_attribute("data-shown")) == whole
    opened.find_element(By.ID, "closer").click()
    assert float(life.get_attribute("data-shown")) == pytest.approx(whole / 2)
    opened.find_element(By.ID, "all").click()
    log = opened.find_element(By.ID, "log")
    log.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert "Batch 1 " in opened.find_element(By.ID, "log-told").text


def test_all_that_can_be_used_is_reached_by_the_tab_key(opened: Any) -> None:
    reached = []
    body = opened.find_element(By.TAG_NAME, "body")
    body.click()
    for _ in range(8):
        opened.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(opened.execute_script("return document.activeElement.id"))
    assert {"log", "closer", "farther", "all", "life"} <= set(reached)


def test_the_page_fits_a_phone(opened: Any) -> None:
    opened.set_window_size(500, 900)
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        wide = opened.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1]
        assert ink(opened, "life") >= 3
        small = opened.execute_script(
            """
            const texts = [...document.querySelectorAll("p, td, dd, dt")];
            return texts.filter((text) => parseFloat(getComputedStyle(text).fontSize) < 12).length;
            """
        )
        assert small == 0
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
