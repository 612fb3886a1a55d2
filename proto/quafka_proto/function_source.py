"""The source code of a compiled function under construction, for decoding and encoding."""

from __future__ import annotations

from typing import Any

from quafka_proto.message import Field, Struct

FIXED = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "16s": 16}
"""The field kinds of fixed width, which are struct codes, with their widths in bytes."""


def is_fixed(field: Field) -> bool:
    """Whether the field always takes the same number of bytes."""
    return field.kind in FIXED


class Source:
    """One function's source under construction."""

    def __init__(
        self, owner: type[Struct], version: int, flexible: bool, runtime: dict[str, Any]
    ) -> None:
        self.owner = owner
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.scope = dict(runtime)
        self.indent = 1
        present = [(n, f) for n, f in owner.FIELDS.items() if version in f.versions]
        self.plain = [(n, f) for n, f in present if f.tag is None]
        self.tagged = [(n, f) for n, f in present if f.tag is not None and flexible]

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, stem: str, value: Any) -> str:
        """Add `value` to the function's scope. Returns its name there."""
        name = f"_{stem}{len(self.scope)}"
        self.scope[name] = value
        return name

    def runs(self) -> list[list[tuple[str, Field]]]:
        """The plain fields, with adjacent ones of fixed width in one list."""
        runs: list[list[tuple[str, Field]]] = []
        for name, field in self.plain:
            if runs and is_fixed(field) and is_fixed(runs[-1][0][1]):
                runs[-1].append((name, field))
            else:
                runs.append([(name, field)])
        return runs

    def finish(self, header: str) -> Any:
        text = "\n".join([header, *self.lines])
        exec(text, self.scope)  # noqa: S102 - built from our own descriptions
        return self.scope["compiled"]


def several(kind: str, count: str) -> str:
    """Source of the struct format of a number of values of fixed width; `count` is also source."""
    if len(kind) > 1:  # UUIDs
        return f"'>' + '{kind}' * {count}"
    # ">5i", not ">iiiii": struct allocates per letter, and caches the format.
    return f"f'>{{{count}}}{kind}'"
