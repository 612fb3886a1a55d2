"""Every page and file names Prometheus' jobs as the alerts and the dashboards select them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
OPERATIONS = ROOT / "docs" / "operations.md"
CHART = DEPLOY / "helm" / "quafka" / "templates" / "monitoring.yaml"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MATCHER = re.compile(r'\bjob(=~?)"([^"]*)"')


def shipped() -> list[dict[str, Any]]:
    """The jobs of the configuration that is shipped."""
    content = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    jobs: list[dict[str, Any]] = content["scrape_configs"]
    return jobs


def documented() -> list[list[dict[str, Any]]]:
    """The jobs of each example on the page about operations."""
    texts = [each for each in _BLOCK.findall(OPERATIONS.read_text("utf-8")) if "job_name:" in each]
    whole, *lists = (yaml.safe_load(each) for each in texts)
    return [whole["scrape_configs"], *lists]


def expressions() -> list[str]:
    """The queries of the alerts and of the dashboards."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for path in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            found += [target["expr"] for target in panel.get("targets", ())]
    return found


def matchers() -> set[tuple[str, str]]:
    """Each selection of jobs: `=` or `=~`, and its value."""
    return {found for each in expressions() for found in _MATCHER.findall(each)}


def names(jobs: list[dict[str, Any]]) -> set[str]:
    return {job["job_name"] for job in jobs}


def test_the_documented_jobs_are_those_that_are_shipped() -> None:
    whole, secured = documented()
    assert whole == shipped()
    assert names(secured) < names(shipped())


@pytest.mark.parametrize("matcher", sorted(matchers()), ids=" ".join)
def test_every_selection_matches_a_job(matcher: tuple[str, str]) -> None:
    operator, value = matcher
    parts = value.split("|") if operator == "=~" else [re.escape(value)]
    for part in parts:
        assert any(re.fullmatch(part, name) for name in names(shipped())), part


def test_a_job_that_is_down_is_reported() -> None:
    (down,) = [each for each in expressions() if each.startswith("up{")]
    ((_, pattern),) = _MATCHER.findall(down)
    assert all(re.fullmatch(pattern, name) for name in names(shipped()))


def test_the_chart_has_the_same_jobs() -> None:
    assert set(re.findall(r'"(quafka-\w+)" "/metrics', CHART.read_text())) == names(shipped())
