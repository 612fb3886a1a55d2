"""The tables in docs/configuration.md agree with the declared settings.

`python -m tests.unit.deploy.test_configuration_page` rewrites the tables.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from quafka.settings import PROGRAMS
from quafka.sources import allowed, declared, dotted, flag, shown, variable
from quafka_mesh_ops.settings import CommonSettings

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def table(config: type[CommonSettings]) -> str:
    """The settings of one program as a Markdown table."""
    defaults = {field.name: field.default for field in fields(config)}
    rows = ["| setting | default | allowed | |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{dotted(name)}` | `{shown(name, known, defaults[name]) or '–'}` "
        f"| {allowed(name, known)} | {known.help} |"
        for name, known in declared(config).items()
    ]
    return "\n".join(rows)


def section(program: str) -> str:
    return f"### quafka {program}\n\n{table(PROGRAMS[program])}\n"


def test_every_setting_is_on_the_page() -> None:
    page = PAGE.read_text()
    for program in PROGRAMS:
        assert section(program) in page, f"write it again: python -m {__name__}"


def test_names_follow_one_rule() -> None:
    assert dotted("wal_fsync") == "wal.fsync"
    assert variable("wal_fsync") == "QUAFKA_WAL_FSYNC"
    assert flag("wal_fsync") == "--wal-fsync"


def test_no_setting_holds_a_secret() -> None:
    """Settings are flags, too, and printed by `quafka config`: secrets are in files."""
    secret = re.compile(r"password|secret|credential|token|key$|keyfile|jaas")
    for program in PROGRAMS.values():
        for name, known in declared(program).items():
            assert not secret.search(name) or re.search("path|folder", known.allowed), name


if __name__ == "__main__":
    head, _, _ = PAGE.read_text().partition("### quafka ")
    PAGE.write_text(head + "\n".join(map(section, PROGRAMS)))
