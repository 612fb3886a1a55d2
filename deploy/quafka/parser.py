"""The parser of the command line: one sentence per error, with the name that may be meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from quafka.exit_codes import EXIT_WRONG_SETTING
from quafka_mesh_ops.suggestions import did_you_mean


class Parser(argparse.ArgumentParser):
    """Ends with exit code 2 and a sentence on stderr if the command line is wrong."""

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its flags and arguments; its subcommands are one of them."""
        return self._actions

    @property
    def subcommands(self) -> dict[str, Parser]:
        """The parsers of its subcommands by name."""
        for action in self._actions:
            if action.nargs == argparse.PARSER:
                return cast("dict[str, Parser]", action.choices)
        return {}

    @property
    def has_settings(self) -> bool:
        """Whether it has a flag for each setting of a program, and two lengths of help."""
        return "--help-all" in self._option_string_actions

    def error(self, message: str) -> NoReturn:
        """Print the sentence, and where to read more: not the usage, which may have 200 flags."""
        everything = "--help-all" if self.has_settings else "--help"
        self.exit(EXIT_WRONG_SETTING, f"{self.prog}: {message}\nsee {self.prog} {everything}\n")

    def parse_known_args(  # type: ignore[override] # argparse has overloads for other namespaces
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does, but a subcommand itself refuses what it does not know."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            name = unknown[0].partition("=")[0]
            kind = "flag" if name.startswith("-") else "argument"
            self.error(f"there is no {kind} {name!r}{did_you_mean(name, flags)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"{value!r} is none of {', '.join(known)}{did_you_mean(str(value), known)}"
            )
