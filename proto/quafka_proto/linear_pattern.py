"""Regular expressions whose matching takes time in proportion to the text (RE2's promise). Pure.

Clients may send any pattern, and Python's `re` can take for ever over a few dozen characters. The
syntax is RE2's (pattern_syntax.py). A pattern matches whole texts, as in Kafka's filters.

A pattern becomes a nondeterministic automaton (Thompson 1968), which follows all alternatives at
once. The successor of a set of alternatives after a character is computed once and kept, up to a
bound: so a long list of names takes one look-up per character.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from quafka_proto.pattern_syntax import (
    Anchor,
    CharSet,
    Either,
    Node,
    PatternError,
    Repeat,
    Sequence,
    is_word,
    parse,
)

__all__ = ["LinearPattern", "PatternError"]

_MAX_STEPS = 4_000
"""Characters of a pattern, which bound the time to read it; and steps of an automaton, repetitions
expanded, which bound the time for each character of a text."""
_MAX_KEPT = 50_000
"""The maximum number of steps in the cached states: some megabytes."""


@dataclass(slots=True)
class _Step:
    """A step of the automaton: its condition and its successors."""

    needs: CharSet | Anchor | None
    to: list[int] = field(default_factory=list[int])


@dataclass(slots=True, eq=False)
class _State:
    """The possible next steps after a character ("" at the beginning).

    Attributes:
        then: the state after each character so far.
        is_match: whether the text may end here; None until it is computed.
    """

    steps: frozenset[int]
    after: str
    then: dict[str, _State] = field(default_factory=dict[str, "_State"])
    is_match: bool | None = None


class LinearPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile it.

        Raises:
            PatternError: see there.
        """
        if len(pattern) > _MAX_STEPS:
            raise PatternError("the pattern is too large")
        self._steps: list[_Step] = []
        self._emitted = 0
        self._end = self._step(None)
        first = self._emit(parse(pattern), self._end)
        self._start = _State(frozenset([first]), "")
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._kept = 0

    def matches(self, text: str) -> Generator[None, None, bool]:
        """Whether the whole text matches. Yields after each character."""
        state = self._start
        for char in text:
            state = state.then.get(char) or self._after(state, char)
            yield
            if not state.steps:
                return False
        if state.is_match is None:
            state.is_match = self._end in self._reached(state, "")
        return state.is_match

    def _after(self, state: _State, char: str) -> _State:
        """Compute and keep the state that follows a character."""
        following: set[int] = set()
        for number in self._reached(state, char):
            needs = self._steps[number].needs
            if isinstance(needs, CharSet) and needs.has(char):
                following.update(self._steps[number].to)
        kind = char if char == "\n" else "w" if is_word(char) else "-"
        key = (frozenset(following), kind)
        if self._kept >= _MAX_KEPT:
            self._kept, self._states = 0, {}
            self._start = _State(self._start.steps, "")
            state.then = {}
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = _State(*key)
        state.then[char] = found
        self._kept += 1 + len(following)
        return found

    def _reached(self, state: _State, following: str) -> set[int]:
        """The steps that a state reaches without a character; `following` is the next character."""
        found: set[int] = set()
        numbers = list(state.steps)
        while numbers:
            number = numbers.pop()
            if number in found:
                continue
            found.add(number)
            needs = self._steps[number].needs
            if needs is None or (
                isinstance(needs, Anchor) and _is_at(needs, state.after, following)
            ):
                numbers += self._steps[number].to
        return found

    def _step(self, needs: CharSet | Anchor | None, *to: int) -> int:
        self._steps.append(_Step(needs, list(to)))
        return len(self._steps) - 1

    def _emit(self, node: Node, after: int) -> int:
        """Add the steps of a node, which lead to the step `after`; returns the first of them."""
        self._emitted += 1
        if self._emitted > _MAX_STEPS:
            raise PatternError("the pattern is too large")
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self._emit(part, after)
            return after
        if isinstance(node, Either):
            return self._step(None, *[self._emit(option, after) for option in node.options])
        if isinstance(node, Repeat):
            return self._emit_repeat(node, after)
        return self._step(node, after)

    def _emit_repeat(self, node: Repeat, after: int) -> int:
        if node.most is None:
            loop = self._step(None, after)
            self._steps[loop].to.append(self._emit(node.part, loop))
            first = loop
        else:
            first = after
            for _ in range(node.most - node.least):
                first = self._step(None, after, self._emit(node.part, first))
        for _ in range(node.least):
            first = self._emit(node.part, first)
        return first


def _is_at(anchor: Anchor, before: str, following: str) -> bool:
    """Whether an anchor is between these characters; "" is the beginning and the end."""
    if anchor is Anchor.START:
        return before == ""
    if anchor is Anchor.END:
        return following == ""
    if anchor is Anchor.LINE_START:
        return before in ("", "\n")
    if anchor is Anchor.LINE_END:
        return following in ("", "\n")
    return (is_word(before) != is_word(following)) == (anchor is Anchor.BOUNDARY)
