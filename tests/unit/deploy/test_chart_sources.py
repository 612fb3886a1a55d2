"""What the Helm chart takes from other places of the repository, as far as no helm is needed."""

from __future__ import annotations

import re
import tomllib
from typing import Any, cast

import yaml

from tests.support import chart
from tests.support.chart import CHART, DEPLOY


def test_the_names_of_settings_in_the_schema_are_those_of_the_product() -> None:
    assert chart.SCHEMA.read_text() == chart.schema(), "python -m tests.support.chart"


def test_every_default_is_in_the_schema_and_vice_versa() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    _compare(values, yaml.safe_load(chart.SCHEMA.read_text()), "")


def _compare(values: Any, schema: Any, where: str) -> None:
    declared = schema.get("properties")
    if not isinstance(values, dict) or declared is None:
        return
    if where not in ("podDisruptionBudget", "issuerRef"):
        assert {*values, "global"} == {*declared, "global"}, where
    for name, value in cast("dict[str, Any]", values).items():
        _compare(value, declared[name], name)


def test_the_chart_has_the_version_of_the_product() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert described["appVersion"] == described["version"] == project["version"]


def test_alerts_and_dashboards_are_links() -> None:
    for name, source in (
        ("alerts.yml", DEPLOY / "prometheus" / "alerts.yml"),
        ("dashboards", DEPLOY / "grafana" / "dashboards"),
    ):
        link = CHART / "files" / name
        assert link.is_symlink()
        assert link.resolve() == source


def test_the_plain_manifest_has_the_image_of_this_version() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = re.findall(r'image: "(.+)"', chart.MANIFEST.read_text())
    assert set(images) == {f"quafka:{described['appVersion']}"}
