"""The page of the doctor, in a real browser: plots are drawn, keys and pointer work, it fits a phone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from making import natural, save
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
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    problems = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert problems == []


def ink(browser: Any, canvas: str) -> int:
    """Give the number of different colours in a plot."""
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


def colours(browser: Any, canvas: str) -> set[str]:
    """Give the most frequent colours of a plot."""
    found = browser.execute_script(
        """
        const canvas = document.getElementById(arguments[0]);
        // The browser warns of plots that are read more than once, so a copy is.
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        const counts = {};
        for (let i = 0; i < data.length; i += 4) {
          const colour = `${data[i]},${data[i + 1]},${data[i + 2]}`;
          if (data[i + 3] === 255) counts[colour] = (counts[colour] ?? 0) + 1;
        }
        return Object.keys(counts).filter((colour) => counts[colour] > 200);
        """,
        canvas,
    )
    return set(found)


def hover(browser: Any, row: str) -> str:
    """Go along the row of that name to the middle of the time that is shown, or on to where something was done."""
    from selenium.webdriver import ActionChains

    life, told = browser.find_element(By.ID, "life"), browser.find_element(By.ID, "life-told")
    browser.execute_script("arguments[0].scrollIntoView()", life)
    top = -life.size["height"] // 2
    for y in range(5, life.size["height"], 10):
        for x in (0, 7, 20, 50, 100, -100):
            ActionChains(browser, duration=0).move_to_element_with_offset(life, x, top + y).perform()
            if not life.get_attribute("data-row").startswith(row):
                break
            if not told.text.endswith("nothing"):
                return str(told.text)
    return ""


def press(browser: Any, *keys: str) -> str:
    """Press keys in the plot of batches, and give the text of the selected row."""
    life = browser.find_element(By.ID, "life")
    browser.execute_script("arguments[0].focus()", life)
    life.send_keys(*keys)
    return str(browser.find_element(By.ID, "life-told").text)


def test_plots_are_drawn_and_the_verdict_is_at_the_top(opened: Any) -> None:
    assert "preparing" in opened.find_element(By.CLASS_NAME, "verdict").text
    assert ink(opened, "log") >= 2
    assert ink(opened, "life") >= 3
    assert int(opened.find_element(By.ID, "life").get_attribute("data-spans")) > 100
    assert len(opened.find_elements(By.TAG_NAME, "svg")) == 2
    assert len(opened.find_elements(By.CSS_SELECTOR, ".bars .bar")) == 7


def test_the_item_under_the_pointer_is_described(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    assert re.search(r"(wait|hand-over|step) of batch \d+ of epoch \d+: ", hover(opened, "trainer"))
    told = hover(opened, "thread 0")
    assert re.search(r"(read|Delay|slot) of \S+ \(.*slot \d; waited [\d.]+ ms to begin", told), told
    assert re.search(r"(order|wait|prepare|hand-over|step).* of batch \d+ of epoch \d+: ", hover(opened, "epoch"))
    log = opened.find_element(By.ID, "log")
    ActionChains(opened).move_to_element(log).perform()
    assert "waited" in opened.find_element(By.ID, "log-told").text


def test_every_batch_has_a_row_of_what_it_went_through(opened: Any) -> None:
    life = opened.find_element(By.ID, "life")
    batches = int(life.get_attribute("data-batches"))
    assert 4 <= batches <= 24
    legends = [legend.text for legend in opened.find_elements(By.CSS_SELECTOR, ".legend")]
    assert any("batches:" in legend and "wait for its turn" in legend for legend in legends)
    press(opened, *[Keys.ARROW_DOWN] * 3)
    stages = []
    for _ in range(6):
        stages.append(press(opened, Keys.ARROW_LEFT))
    assert re.search(r"epoch (\d+) batch (\d+): order of batch \2 of epoch \1: [\d.]+ ms", stages[-1]), stages
    names = ("wait to begin", "prepare", "wait for its turn", "hand-over", "step")
    forward = [press(opened, Keys.ARROW_RIGHT) for _ in names]
    assert [name for name, told in zip(names, forward, strict=True) if f": {name} of batch" not in told] == []


def test_keys_reach_every_row_and_zoom_keeps_the_selection(opened: Any) -> None:
    life = opened.find_element(By.ID, "life")
    seen = []
    for _ in range(30):
        press(opened, Keys.ARROW_DOWN)
        seen.append(life.get_attribute("data-row"))
    assert seen[:2] == ["thread 0", "thread 1"]
    rows = list(dict.fromkeys(seen))
    assert len(rows) == 2 + int(life.get_attribute("data-batches"))
    whole = float(life.get_attribute("data-shown"))
    told = opened.find_element(By.ID, "life-told").text
    assert told.split(",")[1].startswith(f" {rows[-1]}: ")
    assert press(opened, *"+++++") == told
    assert float(life.get_attribute("data-shown")) < 0.4 * whole
    press(opened, Keys.ARROW_UP)
    assert life.get_attribute("data-row") == rows[-2]


def test_dark_draws_with_other_colours_than_light(opened: Any) -> None:
    drawn = {}
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        # The page redraws when the browser notifies it, in the next frame.
        opened.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        drawn[scheme] = colours(opened, "life")
    assert len(drawn["light"]) >= 4
    assert drawn["light"] & drawn["dark"] == set()


def test_names_of_samples_can_be_anything(browser: Any, tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    ran = "<img src=x onerror=\"document.title='ran'\">"
    names = [
        f"</script>{ran}",
        f"'\"`${{document.title='ran'}}{ran}",
        "\u2028ünïcode \U0001f600 \u202e",
        "&lt;b&gt; --> <!--",
    ]
    for number in range(64):
        save(root / "a<" / f"{number} {names[number % 4]}.png", natural(8, 8))
    path = tmp_path / "doctor.html"
    with fl.Loader(fl.folder(root), [fl.ops.DecodeImage(), testing.delay(4.0)], batch_size=4, num_workers=1) as loader:
        fl.doctor(loader, lambda _: time.sleep(0.004), seconds=1.0).save_html(path)
    browser.set_window_size(1100, 900)
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert browser.title == "feedline doctor"
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
    press(browser, Keys.ARROW_DOWN)
    told = " ".join(press(browser, Keys.ARROW_RIGHT) for _ in range(60))
    assert "onerror" in told
    assert "ünïcode" in told
    assert browser.title == "feedline doctor"
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


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


def test_every_control_is_reached_by_the_tab_key(opened: Any) -> None:
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
