"""A browser that is driven: it clicks, types, and tells what its console says."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.support import needs

_SECONDS = 120
_IS_STILL = """
    const [element, answer] = arguments
    const place = () => JSON.stringify(element.getBoundingClientRect())
    const before = place()
    requestAnimationFrame(() => requestAnimationFrame(() => answer(place() === before)))
"""
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Driver:
    """Chromium, by its driver. Everything waits for what it needs."""

    def __init__(self, chrome: Any, url: str) -> None:
        self.chrome = chrome
        self._url = url.rstrip("/")

    def open(self, path: str, text: str) -> None:
        """Open a page, and wait until it shows a text."""
        self.chrome.get(self._url + path)
        self.see(text)

    def see(self, text: str) -> None:
        """Wait until the page shows a text."""
        self._until(lambda: text in self.text(), f"{text!r} is not shown")

    def miss(self, text: str) -> None:
        """Wait until the page shows a text no more."""
        self._until(lambda: text not in self.text(), f"{text!r} is still shown")

    def text(self) -> str:
        """What the page shows."""
        found: str = self.chrome.execute_script("return document.body.innerText")
        return found

    def texts(self, selector: str) -> list[str]:
        """What the elements of a CSS selector show now."""
        script = "return [...document.querySelectorAll(arguments[0])].map(each => each.innerText)"
        found: list[str] = self.chrome.execute_script(script, selector)
        return found

    def click(self, text: str) -> None:
        """Click the button or link with this text, or this label for screen readers."""
        quoted = f'"{text}"'
        its = f"@aria-label={quoted} or .//text()[normalize-space(.)={quoted}]"
        path = f"//*[self::button or self::a][{its}]"

        def clicked() -> bool:
            shown = [each for each in self._all(path) if each.is_displayed() and each.is_enabled()]
            return bool(shown) and self._hit(shown[-1])

        self._until(clicked, f"there is no button or link {quoted}")

    def see_off(self, text: str) -> None:
        """Wait until the button with this text is shown and cannot be pressed."""
        path = f'//button[.//text()[normalize-space(.)="{text}"]]'

        def off() -> bool:
            shown = [each for each in self._all(path) if each.is_displayed()]
            return bool(shown) and not shown[-1].is_enabled()

        self._until(off, f"the button {text!r} is not off")

    def press(self, text: str) -> None:
        """Click what has exactly this text."""
        self._click_last(f"//*[text()='{text}']", text)

    def pick(self, text: str) -> None:
        """Click the row of a table that has this text."""
        self._click_last(f"//tr[.//text()[contains(., '{text}')]]", text)

    def _click_last(self, path: str, text: str) -> None:

        def picked() -> bool:
            shown = [each for each in self._all(path) if each.is_displayed()]
            return bool(shown) and self._hit(shown[-1])

        self._until(picked, f"{text!r} is not there")

    def type(self, label: str, text: str, *, enter: bool = False) -> None:
        """Type into the field with this label or hint."""
        its = f'@aria-label="{label}" or @placeholder="{label}"'
        path = f"//*[self::input or self::textarea][{its}]"

        def typed() -> bool:
            shown = [each for each in self._all(path) if each.is_displayed()]
            if shown:
                shown[-1].send_keys(Keys.CONTROL, "a")
                shown[-1].send_keys(text + (Keys.ENTER if enter else ""))
            return bool(shown)

        self._until(typed, f"there is no field {label!r}")

    def _hit(self, element: Any) -> bool:
        """Click an element, unless it moves, as in a dialog that opens: the click would miss."""
        still: bool = self.chrome.execute_async_script(_IS_STILL, element)
        if still:
            element.click()
        return still

    def errors(self) -> list[str]:
        """What the browser's console has said, except that a page was left."""
        return [each["message"] for each in self.chrome.get_log("browser")]

    def _all(self, path: str) -> list[Any]:
        found: list[Any] = self.chrome.find_elements(By.XPATH, path)
        return found

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        def looked(_chrome: object) -> bool:
            return holds()

        waits: Any = WebDriverWait(
            self.chrome,
            _SECONDS,
            poll_frequency=0.1,
            ignored_exceptions=(StaleElementReferenceException, ElementNotInteractableException,
                                ElementClickInterceptedException),
        )  # fmt: skip
        try:
            waits.until(looked)
        except Exception as e:
            raise AssertionError(f"{what}; the page shows: {self.text()[:2_000]}") from e


@contextmanager
def driven(url: str, folder: Path) -> Generator[Driver]:
    """A browser with a profile of its own in `folder`."""
    options = Options()
    for flag in (*_FLAGS, f"--user-data-dir={folder}", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.binary_location = needs.program("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    chrome = webdriver.Chrome(options=options, service=Service(needs.program("chromedriver")))
    try:
        yield Driver(chrome, url)
    finally:
        chrome.quit()
