"""How a program declares its settings. The `quafka` command reads them from all sources.

A setting is a dataclass field made by `setting`: its name in TOML is the field's with dots
(`wal_fsync` is `wal.fsync`), in the environment `QUAFKA_WAL_FSYNC`, as a flag `--wal-fsync`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from quafka_mesh_ops.grants import parse_entries
from quafka_mesh_ops.identity import NodeId, parse_node_id


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a setting beside its name.

    Attributes:
        help: one line for people.
        parse: text to value; raises ValueError where the text is not allowed.
        allowed: what is allowed, in words.
        blank: how "nothing set" is written.
    """

    help: str
    parse: Callable[[str], Any]
    allowed: str
    blank: str = ""

    def show(self, value: Any) -> str:
        """A value as it would be written."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            return ",".join(map(str, cast("tuple[Any, ...]", value)))
        return self.blank if value is None else str(value)


def setting(
    default: Any,
    help: str,  # noqa: A002
    parse: Callable[[str], Any],
    allowed: str,
    blank: str = "",
) -> Any:
    """A dataclass field that is a setting."""
    return field(default=default, metadata={"setting": Setting(help, parse, allowed, blank)})


def split_address(text: str) -> tuple[str, int]:
    """Split "host:port" or "[v6]:port".

    Raises:
        ValueError: it is neither, or the port is not 0 to 65535.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(text)
    if (":" in bare) != (host == f"[{bare}]"):
        raise ValueError(text)
    return bare, int(port)


def join_address(host: str, port: int) -> str:
    """The text that `split_address` splits, with an IPv6 host in brackets (RFC 3986, 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


ADDRESS = "host:port"


def address(text: str) -> str:
    """A listening or remote address."""
    split_address(text)
    return text


def optional_address(text: str) -> str:
    """An address, or nothing."""
    return address(text) if text else ""


def addresses(text: str) -> tuple[str, ...]:
    """Addresses, separated by commas."""
    return tuple(address(part.strip()) for part in text.split(",") if part.strip())


def node_ids(text: str) -> tuple[NodeId, ...]:
    """Node ids, separated by commas."""
    return tuple(parse_node_id(part) for part in text.split(",") if part.strip())


def allow_entries(text: str) -> tuple[str, ...]:
    """Entries of an allow-list, separated by commas, as grants.py writes them."""
    return tuple(map(str, parse_entries(text)))


def boolean(text: str) -> bool:
    """true or false."""
    return {"true": True, "false": False}[text.lower()]


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text.replace("_", ""))
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def path(text: str) -> Path:
    """A path. An empty one is a variable that was meant to be set, not the current folder."""
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text)


def optional_path(text: str) -> Path | None:
    """A path, or nothing."""
    return path(text) if text else None


def datagram_size(text: str) -> int | None:
    """auto (None) or a number of bytes."""
    return None if text == "auto" else whole(1_200, 60_000)(text)


def fsync(text: str) -> str:
    """commit, never or interval:<ms>."""
    if text in ("commit", "never"):
        return text
    kind, _, milliseconds = text.partition(":")
    if kind != "interval" or not 1 <= int(milliseconds) <= 60_000:
        raise ValueError(text)
    return text


def choice(*allowed: str) -> Callable[[str], str]:
    """One of the given words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return parse


def mesh_allowed_file_setting(what: str = "node ids") -> Any:
    """Every program that speaks on the mesh has it, beside `mesh.allow`.

    It is not called mesh.allow.file: in TOML a name cannot be a list and a table at once.
    """
    help_ = f"file of more such {what}, one a line; read again while the program runs"
    return setting(None, help_, optional_path, "a path")


def mesh_datagram_size_setting() -> Any:
    """Every program that speaks on the mesh has it."""
    help_ = "size of the mesh's UDP datagrams in bytes; auto: by the path"
    return setting(None, help_, datagram_size, "auto, or 1200 to 60000", blank="auto")


def mesh_batched_setting() -> Any:
    """As `mesh_datagram_size_setting`."""
    help_ = "build and read the mesh's packets by the burst; false: one by one, as stock aioquic"
    return setting(True, help_, boolean, "true, false")


def ops_listen_setting(default: str, whose: str = "") -> Any:
    """Where a program's operations port is."""
    help_ = f"HTTP address of {whose}health, metrics and status pages; port 0 takes a free one"
    return setting(default, help_, address, ADDRESS)


def _trace_url(text: str) -> str:
    """A template of an address; nothing else may become a link on a page."""
    if text and not (text.startswith(("http://", "https://")) and "{trace_id}" in text):
        raise ValueError(text)
    return text


LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("console", "json")


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """What every program has."""

    log_level: str = setting(
        "info", "the least severe log lines that are shown", choice(*LOG_LEVELS),
        ", ".join(LOG_LEVELS),
    )  # fmt: skip
    log_format: str = setting(
        "console", "how log lines look", choice(*LOG_FORMATS), ", ".join(LOG_FORMATS)
    )


@dataclass(frozen=True, kw_only=True)
class OpsSettings(CommonSettings):
    """What every program has that runs for long."""

    ops_trace_url: str = setting(
        "", "where a trace is looked at, for links on /statusz", _trace_url,
        "http(s)://… with {trace_id} in it",
    )  # fmt: skip
    ops_slow_ms: int = setting(
        500, "requests that take as long, parked time aside, are shown on /statusz",
        whole(1, 3_600_000), "1 to 3600000",
    )  # fmt: skip
