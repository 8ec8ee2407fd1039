"""The report in a real browser, from disk and without network.

Every plot is drawn, sorting and filtering work, and the console has no errors. Needs Chromium and
its driver (Debian: chromium, chromium-driver). Screenshots stay in the folder of the test.
"""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from duck.report import Contents, read, write_report
from duck.scenarios import ForgetClasses, ForgetFraction
from tests.report.folders import write_assurance, write_removal, write_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="Chromium is not installed: apt-get install chromium chromium-driver",
)
EVIL = "<script>owned()</script>"
BOLD = "<b>1</b>"
SIZES = {
    "desktop": (1280, 900),
    "tablet": (800, 1100),
    "small tablet": (740, 900),
    "phone": (390, 844),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = CHROMIUM or ""
    # As root, as in a container, the sandbox cannot start; the page is our own.
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("report")
    names = [EVIL, BOLD, *"23456789"]
    write_run(
        root / "runs" / "duck",
        request=ForgetClasses([0]),
        names=names,
        verdict="forgotten",
        analysis=True,
    )
    write_assurance(root / "runs" / "duck", EVIL)
    write_run(
        root / "runs" / "retrained",
        "retrained",
        ForgetClasses([0]),
        names,
        1,
        "no verdict",
        notes=[EVIL],
    )
    write_run(root / "runs" / "original", "original", ForgetClasses([0]), names, 2, "not forgotten")
    write_run(root / "runs" / "tenth", request=ForgetFraction(0.1), names=names, seed=3)
    write_removal(root / "bias" / "first", BOLD, EVIL, images=2, shape=(3, 32, 32))
    write_removal(root / "bias" / "second", BOLD, EVIL, seed=1, images=2)
    # Many classes at once, and names without a place to break.
    long = [f"{'x' * 55}{index:05d}" for index in range(200)]
    write_run(
        root / "long" / f"{'run' * 20}",
        request=ForgetClasses(range(150)),
        names=long,
        verdict="forgotten",
    )
    write_run(
        root / "long" / "few", request=ForgetClasses([0]), names=long[:10], analysis=True, seed=1
    )
    (root / "long" / f"{'broken' * 12}").mkdir()
    (root / "long" / f"{'broken' * 12}" / "run.json").write_text("{")
    long_names = read([root / "long"])
    return {
        "long": write_report(root / "long.html", long_names),
        "long run": write_report(root / "long-run.html", Contents(long_names.runs[1:])),
        "many": write_report(root / "many.html", read([root / "runs"])),
        "one": write_report(root / "one.html", read([root / "runs" / "duck"])),
        "bias": write_report(root / "bias.html", read([root / "bias"])),
    }


def opened(
    browser: webdriver.Chrome,
    page: Path,
    size: str = "desktop",
    scheme: str = "light",
    fragment: str = "",
) -> None:
    """From disk, offline, at that width and in that colour scheme."""
    width, height = SIZES[size]
    browser.execute_cdp_cmd("Network.enable", {})
    nothing = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", nothing)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.get("about:blank")
    logged(browser)
    browser.get(page.as_uri() + fragment)


def logged(browser: webdriver.Chrome) -> Any:
    """What the console has said since it was last asked."""
    return browser.get_log("browser")  # type: ignore[no-untyped-call]


def run(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


def wait(browser: webdriver.Chrome, condition: str) -> None:
    WebDriverWait(browser, 30, poll_frequency=0.05).until(lambda _: run(browser, condition))


LOOK = """
const [within, done] = arguments;
(async () => {
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  for (const plot of document.querySelectorAll(`${within} .plot`)) {
    plot.scrollIntoView({block: "center", behavior: "instant"});
    while (!plot.dataset.drawn) await new Promise(requestAnimationFrame);
  }
  done();
})();
"""


def draw_all(browser: webdriver.Chrome, within: str = "body") -> None:
    """Open everything and scroll to each plot; a plot that is never drawn ends in a timeout."""
    browser.set_script_timeout(60)
    browser.execute_async_script(LOOK, within)


def checked(browser: webdriver.Chrome, size: str) -> int:
    """How many plots there are; each is drawn, has words, and fits the screen."""
    draw_all(browser)
    plots = browser.find_elements(By.CLASS_NAME, "plot")
    for plot in plots:
        drawn = plot.find_elements(
            By.CSS_SELECTOR,
            ".main-svg .trace, .main-svg .hm image",
        )
        assert drawn, plot.get_attribute("aria-label")
        assert plot.get_attribute("aria-label")
        words = plot.get_attribute("aria-describedby")
        assert words
        assert browser.find_element(By.ID, words).get_attribute("textContent")
        box = plot.find_element(By.CSS_SELECTOR, ".main-svg").rect
        assert 200 < box["width"] <= SIZES[size][0]
    assert run(browser, "document.documentElement.scrollWidth") <= SIZES[size][0]
    return len(plots)


def shot(browser: webdriver.Chrome, path: Path) -> None:
    browser.execute_script("scrollTo(0, 0)")
    height = run(browser, "document.documentElement.scrollHeight")
    clip = {
        "x": 0,
        "y": 0,
        "width": run(browser, "innerWidth"),
        "height": min(height, 9000),
        "scale": 1,
    }
    taken = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    path.write_bytes(base64.b64decode(taken["data"]))


def texts(browser: webdriver.Chrome, column: int) -> list[str]:
    cells = browser.find_elements(
        By.CSS_SELECTOR, f"#runs-table tbody tr:not([hidden]) > :nth-child({column})"
    )
    return [cell.text.split("\n")[0] for cell in cells]


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        ("one", "desktop", "light"),
        ("one", "phone", "dark"),
        ("many", "desktop", "dark"),
        ("many", "phone", "light"),
        ("bias", "desktop", "light"),
        ("bias", "phone", "dark"),
    ],
)
def test_every_plot_draws_and_the_console_is_silent(
    browser: webdriver.Chrome, pages: dict[str, Path], name: str, size: str, scheme: str
) -> None:
    opened(browser, pages[name], size, scheme)
    assert checked(browser, size) == {"one": 15, "many": 37, "bias": 3 + 2 * (4 + 2 * 3)}[name]
    dark = run(browser, "getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 22, 26)") == (scheme == "dark")
    ink = run(browser, "getComputedStyle(document.querySelector('.plot .xtick text')).fill")
    assert ink == {"light": "rgb(27, 31, 36)", "dark": "rgb(230, 233, 237)"}[scheme]
    shot(browser, pages[name].with_name(f"{name}-{size}-{scheme}.png"))
    assert logged(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desktop", "small tablet", "phone"])
@pytest.mark.parametrize("name", ["long", "long run"])
def test_long_lists_and_names_fit(
    browser: webdriver.Chrome, pages: dict[str, Path], name: str, size: str
) -> None:
    opened(browser, pages[name], size)
    assert checked(browser, size) > 4
    wide = (
        "[...document.querySelectorAll('main *')]"
        ".filter((e) => !e.closest('.scroll > *, .plot, .unseen, pre') && e.scrollWidth)"
    )
    over = (
        f"{wide}.filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert run(browser, over) == []
    shot(browser, pages[name].with_name(f"{name}-{size}.png"))
    assert logged(browser) == []


def test_finding_looks_at_all_classes_of_a_long_request(
    browser: webdriver.Chrome, pages: dict[str, Path]
) -> None:
    opened(browser, pages["long"])
    browser.find_element(By.NAME, "text").send_keys("149")
    assert texts(browser, 1) == ["run" * 20]
    assert "classes 0, 1, 2 and 147 others" in browser.find_element(By.ID, "runs-table").text


@pytest.mark.slow
def test_the_page_that_the_demo_writes(
    browser: webdriver.Chrome, demo: Path, tmp_path: Path
) -> None:
    for size, scheme in (("desktop", "light"), ("phone", "dark")):
        opened(browser, demo / "report.html", size, scheme)
        assert checked(browser, size) > 30
        assert browser.find_elements(By.CSS_SELECTOR, "figure[id$=-features]")
        assert len(texts(browser, 1)) == 7
        browser.find_element(By.NAME, "text").send_keys("class duck")
        assert texts(browser, 1) == ["class-duck"]
        shot(browser, tmp_path / f"demo-{size}-{scheme}.png")
        assert logged(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "columns"), [("desktop", 3), ("tablet", 3), ("small tablet", 1), ("phone", 1)]
)
def test_panels_of_the_models_stay_next_to_or_below_each_other(
    browser: webdriver.Chrome, pages: dict[str, Path], size: str, columns: int
) -> None:
    opened(browser, pages["one"], size)
    grid = run(
        browser,
        "getComputedStyle(document.querySelector('figure[id$=-features] .panels'))"
        ".gridTemplateColumns",
    )
    assert len(grid.split()) == columns


def test_the_methods_that_assurance_tried_are_in_a_table(
    browser: webdriver.Chrome, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])
    table = browser.find_element(By.CSS_SELECTOR, "[aria-label='Table of methods that were tried']")
    rows = [row.text for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert rows[0] == f"duck-soft ✗ no {EVIL} no verdict 0.38 2.50 s"
    assert [row.partition(" ")[0] for row in rows] == ["duck-soft", "scrub", "warm-restart"]
    assert table.rect["width"] > 0


def test_a_class_called_script_is_text_everywhere(
    browser: webdriver.Chrome, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])
    draw_all(browser)
    assert browser.title.startswith("Unlearning report")
    assert f"the class “{EVIL}”" in browser.find_element(By.TAG_NAME, "main").text
    ticks = run(
        browser,
        "[...document.querySelectorAll('.plot .ytick text')].map((tick) => tick.textContent)",
    )
    assert f"{EVIL} (forgotten)" in ticks
    # Plotly would take this one for markup.
    assert BOLD in " ".join(ticks)
    assert (
        run(
            browser,
            "document.scripts.length - "
            "document.querySelectorAll('script[type=\"application/json\"]').length",
        )
        == 2
    )


def test_maps_of_a_bias_removal_are_square_and_side_by_side(
    browser: webdriver.Chrome, pages: dict[str, Path]
) -> None:
    opened(browser, pages["bias"], fragment="#bias-1-first")
    draw_all(browser, "#bias-1-first")
    drawn = browser.find_elements(By.CSS_SELECTOR, "#bias-1-first-maps .plot .hm image")
    assert len(drawn) == 6
    boxes = [image.rect for image in drawn]
    for box in boxes:
        assert abs(box["width"] - box["height"]) <= 1
        assert box["width"] > 100
    assert [len({round(box["y"]) for box in row}) for row in (boxes[:3], boxes[3:])] == [1, 1]
    assert boxes[3]["y"] > boxes[0]["y"]
    titles = browser.find_elements(By.CSS_SELECTOR, "#bias-1-first-shares h4")
    assert titles[0].text == f"predicted {EVIL}, with the square"
    assert run(browser, "document.querySelectorAll('b, script:not([type])').length") == 2


def test_sorting(browser: webdriver.Chrome, pages: dict[str, Path]) -> None:
    opened(browser, pages["many"])
    assert texts(browser, 1) == ["duck", "original", "retrained", "tenth"]
    seconds, run_name = (
        browser.find_elements(By.CSS_SELECTOR, "#runs-table thead button")[at] for at in (7, 0)
    )
    head = browser.find_element(By.CSS_SELECTOR, "#runs-table thead th:nth-child(8)")
    for order in ("ascending", "descending"):
        seconds.click()
        assert head.get_attribute("aria-sort") == order
        shown = [float(text) for text in texts(browser, 8)]
        assert shown == sorted(shown, reverse=order == "descending")
    run_name.click()
    assert head.get_attribute("aria-sort") == "none"
    assert texts(browser, 1) == ["duck", "original", "retrained", "tenth"]


def test_filtering(browser: webdriver.Chrome, pages: dict[str, Path]) -> None:
    opened(browser, pages["many"])
    find, count = browser.find_element(By.NAME, "text"), browser.find_element(By.ID, "shown")
    assert count.text == "4 of 4 shown"
    find.send_keys("10 %")
    assert texts(browser, 1) == ["tenth"]
    assert count.text == "1 of 4 shown"
    find.clear()
    find.send_keys("class duck")  # words that do not stand side by side
    assert texts(browser, 1) == ["duck"]
    find.clear()
    find.send_keys(" ")
    browser.find_element(By.CSS_SELECTOR, "select[name=method] option:nth-child(2)").click()
    assert texts(browser, 4) == ["duck", "duck"]
    browser.find_element(By.XPATH, "//select[@name='verdict']/option[.='forgotten']").click()
    assert texts(browser, 1) == ["duck"]


def test_the_legend_hides_and_shows(browser: webdriver.Chrome, pages: dict[str, Path]) -> None:
    opened(browser, pages["many"])
    draw_all(browser, "#aus-time")
    count = "document.querySelectorAll('#aus-time .plot .scatterlayer .trace').length"
    assert run(browser, count) == 6
    button = browser.find_element(By.CSS_SELECTOR, "#aus-time .legend button")
    for pressed, traces in (("false", 2), ("true", 6)):
        browser.execute_script("arguments[0].click()", button)
        assert button.get_attribute("aria-pressed") == pressed
        wait(browser, f"{count} === {traces}")


def test_lines_of_equal_aus_have_labels(browser: webdriver.Chrome, pages: dict[str, Path]) -> None:
    opened(browser, pages["many"])
    draw_all(browser, "#aus-contour")
    labels = "[...document.querySelectorAll('#aus-contour .textpoint')].map((e) => e.textContent)"
    assert {"0.60", "0.90", "1.00"} <= set(run(browser, labels))


def test_a_link_opens_its_run(browser: webdriver.Chrome, pages: dict[str, Path]) -> None:
    opened(browser, pages["many"])
    part = browser.find_element(By.ID, "run-3-retrained")
    assert part.get_attribute("open") is None
    browser.find_element(By.LINK_TEXT, "retrained").click()
    wait(browser, "document.getElementById('run-3-retrained').open")
    opened(browser, pages["many"], fragment="#run-4-tenth")
    assert browser.find_element(By.ID, "run-4-tenth").get_attribute("open") is not None


@pytest.mark.slow
def test_print_shows_everything_in_light_colours(
    browser: webdriver.Chrome, pages: dict[str, Path]
) -> None:
    opened(browser, pages["many"], scheme="dark")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert run(browser, "document.querySelectorAll('details:not([open])').length") == 0
    assert run(browser, "document.querySelectorAll('.plot:not([data-drawn])').length") == 0
    assert (
        run(browser, "getComputedStyle(document.querySelector('.plot .xtick text')).fill")
        == "rgb(27, 31, 36)"
    )
    assert (
        max(
            run(
                browser,
                "[...document.querySelectorAll('.plot .main-svg')].map((plot) => plot.clientWidth)",
            )
        )
        <= 640
    )
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert run(browser, "document.querySelectorAll('details.run[open]').length") == 0
    assert logged(browser) == []


@pytest.mark.slow
def test_maps_of_one_image_fit_next_to_each_other_on_paper(
    browser: webdriver.Chrome, pages: dict[str, Path]
) -> None:
    opened(browser, pages["bias"])
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    for name, width in (
        ("bias-1-first-maps", 203),
        ("bias-2-second-maps", 203),
        ("bias-1-first-square", 640),
    ):
        widths = run(
            browser,
            f"[...document.querySelectorAll('#{name} .plot .main-svg')]"
            ".map((plot) => plot.clientWidth)",
        )
        assert set(widths) == {width}
    assert logged(browser) == []
