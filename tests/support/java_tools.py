"""Kafka's command line tools, several in one virtual machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.support.java import kafka_tools, run_java

FOLDER = Path(__file__).parents[1] / "compat" / "java"


@dataclass(frozen=True, slots=True)
class Run:
    """One call of a tool: its class, its arguments, and what it reads."""

    tool: str
    arguments: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a tool ended, and what it printed."""

    exit: int
    output: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def tool(name: str, *arguments: str, text: str = "") -> Run:
    """A tool of Kafka's tools package."""
    return Run(f"org.apache.kafka.tools.{name}", arguments, text)


def run_tools(runs: dict[str, Run]) -> dict[str, Outcome]:
    """Run them one after another."""
    described = [
        {"tool": run.tool, "arguments": run.arguments, "input": run.text} for run in runs.values()
    ]
    jars = kafka_tools()
    answers = json.loads(run_java(FOLDER / "Tools.java", jars, json.dumps(described)))
    return {
        name: Outcome(answer["exit"], answer["output"])
        for name, answer in zip(runs, answers, strict=True)
    }
