"""The runbooks: a section for each alert, and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from quafka import cli
from quafka.settings import known_to_any
from quafka.sources import dotted

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "runbooks.md"
URL = "https://github.com/quafka/quafka/blob/main/docs/runbooks.md#"


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    content = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def sections() -> dict[str, str]:
    """The text of each alert's section."""
    _, *parts = re.split(r"^## ", RUNBOOKS.read_text(), flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def commands() -> set[str]:
    """The commands of quafka, in blocks and in lines."""
    text = RUNBOOKS.read_text()
    text = text.replace("runuser -u quafka -- quafka ", "quafka ")
    blocks = re.findall(r"^(quafka .*)$", text, re.MULTILINE)
    return {*blocks, *re.findall(r"`(quafka [^`]*)`", text)}


def test_every_alert_leads_to_its_section() -> None:
    alerts = {rule["alert"]: rule for rule in rules()}
    assert list(sections()) == list(alerts), "in the order of the alerts"
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook_url"] == URL + name.lower()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_section_has_the_severity_of_its_alert(rule: dict[str, Any]) -> None:
    severity = rule["labels"]["severity"].capitalize()
    assert sections()[rule["alert"]].lstrip().startswith(f"**{severity}.** ")


@pytest.mark.parametrize("command", sorted(commands()))
def test_commands_exist(command: str) -> None:
    real = command.replace("TOPIC:PARTITION", "orders:0").replace("NODE_ID", "0" * 64)
    words = shlex.split(real)[1:]
    cli._parser(words[0]).parse_args(words)  # ends with an error where it is none


def test_settings_exist() -> None:
    known = {dotted(name) for name in known_to_any()}
    known |= {name.removeprefix("group.") for name in known}  # as configs of one group
    beginnings = ("mesh.", "wal.", "snapshot.", "share.", "log.", "max.connections", "ssl.")
    named = re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", RUNBOOKS.read_text())
    used = [name for name in named if name.startswith(beginnings)]
    assert len(used) > 8
    assert [name for name in used if name not in known] == []
