"""What a Prometheus server sees of a process, judged by other people's parsers."""

from __future__ import annotations

import http.client
import subprocess

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from tests.support.needs import program

OPEN = "application/openmetrics-text; version=1.0.0; q=0.9, text/plain; q=0.5"


def get(address: str, path: str, accept: str = "") -> tuple[int, str, str]:
    """A page of an operations port: status, content type, text."""
    client = http.client.HTTPConnection(address, timeout=10)
    client.request("GET", path, headers={"Accept": accept} if accept else {})
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    return answer.status, answer.headers["content-type"], text


def samples(text: str, *, openmetrics: bool = False) -> dict[tuple[str, frozenset[str]], float]:
    """Every sample by its name and its labels, each "name=value"; none may come twice."""
    found: dict[tuple[str, frozenset[str]], float] = {}
    names: set[str] = set()
    for family in (parse_open if openmetrics else parse_plain)(text):
        assert family.name not in names, f"{family.name} comes twice"
        assert family.documentation, f"{family.name} has no help"
        assert family.type != "unknown", f"{family.name} has no type"
        names.add(family.name)
        for sample in family.samples:
            key = sample.name, frozenset(f"{k}={v}" for k, v in sample.labels.items())
            assert key not in found, f"{key} comes twice"
            found[key] = sample.value
    return found


class Scrape:
    """One scrape, asked by name and labels."""

    def __init__(self, address: str, path: str = "/metrics") -> None:
        status, _, self.text = get(address, path)
        assert status == 200
        self._samples = samples(self.text)

    def __call__(self, name: str, **labels: str) -> float:
        """The sample's value; labels that are not named must not be there."""
        return self._samples[name, frozenset(f"{k}={v}" for k, v in labels.items())]

    def sum(self, name: str) -> float:
        """Over all labels."""
        return sum(value for (each, _), value in self._samples.items() if each == name)

    @property
    def names(self) -> set[str]:
        """Of all samples."""
        return {name for name, _ in self._samples}


def lint(text: str) -> str:
    """What `promtool check metrics` has against it."""
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
