"""What is printed when all programs of a command are ready."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quafka_telemetry.otlp_environment import endpoint

TRACING = "tracing"
"""The key in the ready report of a program that records traces."""


class Greeting(Protocol):
    """What is printed."""

    def show(self, reports: Mapping[str, Mapping[str, str]]) -> str:
        """Return the text; "": nothing. `reports`: the ready report of each child, by name."""
        ...


@dataclass(frozen=True, slots=True)
class UpGreeting:
    """The addresses of `quafka up`.

    Attributes:
        broker, gateways: the names of the children.
        pages: the configured address of each child's operations pages, by name.
        scheme: of these pages.
        protocols: of each listener, its protocol, if its name is another one.
        named: whether addresses are printed with the names of listeners.
        open_to: who may connect without authentication; "": nobody.
        data: where the records are, and when they are durable.
        console: the console's URL, without a slash at its end; "": it does not run.
        console_note: why it does not, or not where one expects it; "": no need to say.
    """

    broker: str
    gateways: Sequence[str]
    pages: Mapping[str, str]
    scheme: str
    protocols: Sequence[str]
    named: bool
    open_to: str
    data: str
    console: str
    console_note: str

    def show(self, reports: Mapping[str, Mapping[str, str]]) -> str:
        """See Greeting."""
        first = reports[self.gateways[0]]
        clients = "\n                  ".join(self._clients(first))
        status = "\n                  ".join(
            self._page(name, reports[name]["operations"]) for name in (*self.gateways, self.broker)
        )
        return (
            f"Quafka is up.\n"
            f"  Kafka clients   {clients}\n"
            f"  data            {self.data}\n"
            f"  mesh            {reports[self.broker]['mesh']}/udp, QUIC, mutual TLS\n"
            f"  status          {status}\n"
            f"{self._console()}"
            f"  traces          {self._traces(first)}\n"
            f"Ctrl-C stops {'all' if self.console or len(self.gateways) > 1 else 'both'} processes."
        )

    def _console(self) -> str:
        """The line about the console, if there is one."""
        url = f"{self.console}/" if self.console else ""
        shown = "; ".join(each for each in (url, self.console_note) if each)
        return f"  console         {shown}\n" if shown else ""

    def _traces(self, report: Mapping[str, str]) -> str:
        """Where traces go."""
        configured = endpoint(os.environ, "TRACES")
        to = configured or (f"{self.console}/traces" if self.console else "")
        if not to:
            return "off (set OTEL_EXPORTER_OTLP_ENDPOINT)"
        return to if TRACING in report else "off (by an OTEL_ variable)"

    def _clients(self, report: Mapping[str, str]) -> list[str]:
        """The lines about listeners: their addresses, and who may connect."""
        bound = report["listeners"].split(",")
        advertised = report["advertised_listeners"].split(",")
        lines: list[str] = []
        for at, told, protocol in zip(bound, advertised, self.protocols, strict=True):
            shown = at if self.named else _address(at)
            if protocol:
                shown += f" ({protocol})"
            also = "" if at == told else f" (advertised as {_address(told)})"
            lines.append(shown + also)
        if self.open_to:
            lines.append(f"open to everyone {self.open_to}: no authentication")
        return lines

    def _page(self, name: str, found: str) -> str:
        """The line about a child's pages, and why they are not at the configured port."""
        port = self.pages[name].rpartition(":")[2]
        instead = "" if port in ("0", found.rpartition(":")[2]) else f"; port {port} is in use"
        return f"{self.scheme}://{found}/statusz ({name}{instead})"


def _address(endpoint: str) -> str:
    """The address in NAME://host:port."""
    return endpoint.partition("://")[2]


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """The ready report of several gateways as one: that of the first, with all operations ports.

    `ready_fd`: a parent process reads it there, as JSON; None: it is printed.
    """

    ready_fd: int | None

    def show(self, reports: Mapping[str, Mapping[str, str]]) -> str:
        """See Greeting. Writes to `ready_fd` and closes it."""
        children = list(reports.values())
        operations = ", ".join(child["operations"] for child in children)
        about = {**children[0], "operations": operations, "workers": str(len(children))}
        if self.ready_fd is None:
            return "ready: " + ", ".join(f"{key} {value}" for key, value in about.items())
        with os.fdopen(self.ready_fd, "w") as out:
            out.write(json.dumps(about) + "\n")
        return ""
