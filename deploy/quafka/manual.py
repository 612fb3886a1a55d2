"""`quafka help`: the help of a command, or a manual page made from it (man(7)'s macros)."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from quafka.exit_codes import EXIT_WRONG_SETTING
from quafka.parser import Parser
from quafka_mesh_ops.suggestions import did_you_mean
from quafka_telemetry.version import version

WHAT = "print the help of a command, or the manual page"
_EXIT_CODES = (
    ("0", "done"),
    ("1", "failed, at least in part; stderr has the reason and the fix"),
    ("2", "wrong usage; stderr names the flag, command or setting that may be meant"),
    ("130", "ended by Ctrl-C"),
    ("141", "the reader of the output closed the pipe"),
)
_VARIABLES = (
    ("QUAFKA_BROKERS", "where the client commands connect (default: localhost:9092)"),
    ("QUAFKA_COMMAND_CONFIG", "how they connect and log in: a file of Kafka's properties"),
    ("QUAFKA_REGISTRY", "the URL of the schema registry of produce and consume"),
    ("QUAFKA_CONFIG", "the TOML file of settings of the programs"),
    ("QUAFKA_NAME", "the setting name, with _ in place of dots"),
    ("NO_COLOR", "if set, no colours"),
)
_SPECIAL = re.compile(r"^[.']")


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of `quafka help`."""
    command.add_argument(
        "words", nargs="*", metavar="COMMAND", help="for example: topics create (default: all)"
    )
    command.add_argument(
        "--man", action="store_true",
        help="a manual page: quafka help --man > ~/.local/share/man/man1/quafka.1",
    )  # fmt: skip


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Print what was asked for. `parser`: the whole one."""
    for word in options.words:
        known = parser.subcommands
        if word not in known:
            what = f"none of {', '.join(known)}" if known else "too much"
            hint = did_you_mean(word, list(known))
            print(f"quafka help: {word!r} is {what}{hint}", file=sys.stderr)
            return EXIT_WRONG_SETTING
        parser = known[word]
    sys.stdout.write(page(parser) if options.man else parser.format_help())
    return 0


def page(parser: Parser) -> str:
    """The manual page of a command and those below it.

    Of a program among them only its purpose is on the page: its flags have a page of their own.
    """
    name = parser.prog.replace(" ", "-")
    lines = [
        f'.TH {name.upper()} 1 "" "quafka {version()}" "Quafka"',
        ".SH NAME",
        _text(f"{name} - {parser.description or WHAT}"),
        ".SH SYNOPSIS",
        ".nf",
        *map(_text, _usage(parser).splitlines()),
        ".fi",
    ]
    if _options(parser):
        lines += [".SH OPTIONS", *_tagged(parser)]
    below = list(_below(parser))
    if below:
        lines += [".SH COMMANDS"]
    for each in below:
        lines += [f'.SS "{_text(each.prog)}"', _text(_sentence(each.description))]
        if each.has_settings:
            words = each.prog.removeprefix("quafka ")
            lines += [
                ".PP",
                _text(f"Its settings: quafka {words} --help, or quafka help {words} --man."),
            ]
        elif not each.subcommands:
            lines += [".PP", ".nf", *map(_text, _usage(each).splitlines()), ".fi", *_tagged(each)]
    lines += [".SH ENVIRONMENT", *_pairs(_VARIABLES), ".SH EXIT STATUS", *_pairs(_EXIT_CODES)]
    return "\n".join(lines) + "\n"


def _below(parser: Parser) -> Iterator[Parser]:
    for each in parser.subcommands.values():
        yield each
        if not each.has_settings:
            yield from _below(each)


def _options(parser: Parser) -> Sequence[argparse.Action]:
    return [
        action
        for action in parser.actions
        if action.help != argparse.SUPPRESS
        and action.nargs != argparse.PARSER
        and not (action.dest == "help" and action.nargs == 0)
    ]


def _usage(parser: Parser) -> str:
    return parser.format_usage().removeprefix("usage: ").rstrip("\n")


def _tagged(parser: Parser) -> list[str]:
    found: list[tuple[str, str]] = []
    for action in _options(parser):
        value = _value(action)
        names = ", ".join(action.option_strings) or value
        tag = f"{names} {value}" if action.option_strings and value else names
        found.append((tag, (action.help or "") % _words(parser, action)))
    return _pairs(found)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def _words(parser: Parser, action: argparse.Action) -> dict[str, Any]:
    """What argparse itself replaces in a help text."""
    return {**vars(action), "prog": parser.prog}


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for tag, text in pairs:
        lines += [".TP", f"\\fB{_text(tag)}\\fR", _text(_sentence(text) or "-")]
    return lines


def _sentence(text: str | None) -> str:
    return "" if not text else text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _text(text: str) -> str:
    """Text as troff reads it: no control line, and hyphens that can be copied."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return _SPECIAL.sub(lambda found: rf"\&{found[0]}", escaped)
