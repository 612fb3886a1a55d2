"""`python -m tests.console.screenshots [NAME ...]`: the pictures of docs/images.

A real gateway and broker with the seeded data, the real console, and Chromium without a window.
Look at each picture before it is committed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.seed import seeded
from tests.support.cluster import Cluster
from tests.support.consoles import console_of
from tests.support.ports import lasting_port

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_WARM_SECONDS = 45.0
"""So that charts have points, and groups a pace."""
_SETTLE_SECONDS = 3.0
_COLOURS = 256
_MOST_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a page, in pixels."""

    name: str
    path: str
    width: int = 1400
    height: int = 860
    dark: bool = False
    clicks: Sequence[str] = ()
    """Links to follow first."""


PICTURES = (
    Picture("console-overview", "/"),
    Picture("console-overview-dark", "/", dark=True),
    Picture("console-messages", "/messages?topic=shop.orders", height=1000),
    Picture("console-trace", "/traces?search=shop.orders+Produce", clicks=("Produce",)),
    Picture(
        "console-record",
        "/traces?topic=shop.payments&api=Fetch",
        height=1180,
        clicks=("Fetch", "path of the first"),
    ),
    Picture("console-group", "/group?name=billing", height=1000),
    Picture("console-share-group", "/group?name=mail-sender", height=1000),
    Picture("console-phone", "/group?name=mail-sender", width=400, height=860, dark=True),
)


def main() -> None:
    """Take the named pictures, or all."""
    wanted = [each for each in PICTURES if not sys.argv[1:] or each.name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = lasting_port()
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        with (
            Cluster(folder, env=traced) as cluster,
            seeded(cluster.bootstrap),
            console_of(cluster, folder, port=port) as (url, _),
            browser() as chrome,
        ):
            chrome.get(url)
            time.sleep(_WARM_SECONDS)
            for each in wanted:
                take(chrome, url, each)


def browser() -> Chrome:
    """Chromium; a context manager."""
    options = ChromeOptions()
    options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    for each in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", "disable-quic"):
        options.add_argument(f"--{each}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def take(chrome: Chrome, url: str, picture: Picture) -> None:
    """Take a picture, with few colours, so that it is small."""
    chrome.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": picture.width, "height": picture.height, "deviceScaleFactor": 1,
         "mobile": picture.width < 600},
    )  # fmt: skip
    scheme = {"name": "prefers-color-scheme", "value": "dark" if picture.dark else "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    chrome.get(url + picture.path)
    WebDriverWait(chrome, 30).until(
        lambda seen: seen.find_elements(By.CSS_SELECTOR, ".q-page-body")
    )
    time.sleep(_SETTLE_SECONDS)
    for link in picture.clicks:
        chrome.find_elements(By.LINK_TEXT, link)[0].click()
        time.sleep(_SETTLE_SECONDS)
    log: Any = chrome.get_log  # it has no types
    for line in log("browser"):
        print(f"{picture.name}: {line['level']} {line['message'][:300]}")
    image = Image.open(BytesIO(chrome.get_screenshot_as_png())).convert("RGB")
    small = image.quantize(_COLOURS, dither=Image.Dither.NONE)
    target = IMAGES / f"{picture.name}.png"
    small.save(target, optimize=True)
    size = target.stat().st_size
    print(f"{target.name}: {size:,} bytes{'  TOO LARGE' if size > _MOST_BYTES else ''}")


if __name__ == "__main__":
    main()
