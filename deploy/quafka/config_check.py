"""`quafka config check FILE`: every wrong setting of a file of settings, with its line.

No program is started, and neither environment nor flags are read.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quafka.commands.output import plain
from quafka.exit_codes import EXIT_WRONG_SETTING
from quafka.settings import PROGRAMS, known_to_any
from quafka.sources import SettingError, as_text, declared, dotted, flat, parsed
from quafka_mesh_ops.settings import Setting
from quafka_mesh_ops.suggestions import did_you_mean

WHAT = "check a file of settings: names, values, and the line of each that is wrong"


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong setting. `line`: where its value ends, from 1; None: the file names none."""

    line: int | None
    name: str | None
    error: str


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    command.add_argument("file", type=Path, metavar="FILE", help="a TOML file of settings")
    command.add_argument(
        "--for", choices=tuple(PROGRAMS), dest="reader",
        help="also refuse settings that this program ignores (default: those of any program pass)",
    )  # fmt: skip
    command.add_argument("--format", choices=("text", "json"), default="text")


def run(options: argparse.Namespace) -> int:
    """Check the file; return the exit code: 0 all right, 2 a setting is wrong.

    Raises:
        SettingError: the file cannot be read.
    """
    try:
        text = options.file.read_text("utf-8")
    except OSError as e:
        raise SettingError(f"cannot read {options.file}: {e.strerror or e}") from e
    except UnicodeDecodeError:
        settings, faults = 0, [Fault(None, None, "not TOML: it is not UTF-8")]
    else:
        settings, faults = check(text, options.reader)
    if options.format == "json":
        document = {
            "file": str(options.file), "valid": not faults, "settings": settings,
            "faults": [asdict(fault) for fault in faults],
        }  # fmt: skip
        print(json.dumps(document, ensure_ascii=False, indent=2))
    elif not faults:
        noun = "setting" if settings == 1 else "settings"
        print(f"{options.file}: {settings} {noun}, no errors")
    else:
        for fault in faults:
            place = options.file if fault.line is None else f"{options.file}:{fault.line}"
            print(plain(f"{place}: {fault.error}"), file=sys.stderr)
    return EXIT_WRONG_SETTING if faults else 0


def check(text: str, program: str | None = None) -> tuple[int, list[Fault]]:
    """The number of settings of a file, and what is wrong with it, by line.

    `program`: the only reader of the file; None: any program may be.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        return 0, [Fault(None, None, f"not TOML: {e}")]
    except RecursionError:
        return 0, [Fault(None, None, "its values are nested too deeply")]
    known = known_to_any()
    readers = {
        name: sorted(each for each, config in PROGRAMS.items() if name in declared(config))
        for name in known
    }
    by_name = {dotted(name): name for name in known}
    named = flat(content)
    faults: list[Fault] = []
    for name, value in named:
        field = by_name.get(name)
        if field is None:
            error = f"{name} is not a setting{did_you_mean(name, by_name)}"
        elif program is not None and program not in readers[field]:
            error = f"{name} is not a setting of {program}, but of {', '.join(readers[field])}"
        else:
            error = _wrong_value(field, known[field], value)
        if error:
            faults.append(Fault(None, name, error))
    lines = _lines(text, {fault.name for fault in faults if fault.name}) if faults else {}
    found = [Fault(lines.get(fault.name or ""), fault.name, fault.error) for fault in faults]
    return len(named), sorted(found, key=lambda fault: fault.line or 0)


def _wrong_value(field: str, known: Setting, value: Any) -> str:
    try:
        parsed(field, known, as_text(value))
    except SettingError as e:
        return str(e)
    return ""


def _lines(text: str, names: set[str]) -> dict[str, int]:
    """The line on which the value of each setting ends.

    `tomllib` reports no lines, so growing beginnings of the file are read until the name is there.
    """
    found: dict[str, int] = {}
    lines = text.splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        if len(found) == len(names):
            break
        try:
            content: Mapping[str, Any] = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue  # within a value of several lines
        for name, _ in flat(content):
            if name in names:
                found.setdefault(name, number)
    return found
