"""The findings of checks: ok, a warning or a failure; the last two come with a fix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `fix`: what to do if the status is not ok."""

    check: str
    status: Status
    message: str
    fix: str | None = None


@dataclass(slots=True)
class Report:
    """The findings so far."""

    findings: list[Finding] = field(default_factory=list[Finding])

    def ok(self, check: str, message: str) -> None:
        """Add a finding without a problem."""
        self.findings.append(Finding(check, "ok", message))

    def warn(self, check: str, message: str, fix: str) -> None:
        """Add a finding that does not stop clients from working."""
        self.findings.append(Finding(check, "warn", message, fix))

    def fail(self, check: str, message: str, fix: str | None = None) -> None:
        """Add a failure. Without `fix`, it is the part of the message after the first "; "."""
        if fix is None:
            message, _, fix = message.partition("; ")
        self.findings.append(Finding(check, "fail", message, fix or None))

    @property
    def problems(self) -> list[Finding]:
        """The warnings and failures."""
        return [each for each in self.findings if each.status != "ok"]

    @property
    def healthy(self) -> bool:
        """Whether no check has failed."""
        return all(each.status != "fail" for each in self.findings)
