"""Patterns match as RE2's and Python's do, in time in proportion to the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.handlers.linear_pattern import LinearPattern, PatternError
from quafka_telemetry.slices import at_once


def matches(pattern: str, text: str) -> bool:
    return at_once(LinearPattern(pattern).matches(text))


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "abc", ".*", "a.c", "a|b|", "(a|b)*c", "a+b?", "a{2}", "a{1,2}b{0,}", "(?:ab)+",
        "[abc]+", "[^abc]+", "[a-c1-3]*", "[]a]+", "[a-]+", "[\\]a]+", "\\d+", "\\w*\\s\\D",
        "^abc$", "^$", "a^b", "[\\w-]+", "[\\d.]+", "\\x61b", "a\\.b", "(a*)*b", "()*a", "(a|)+",
        "a*?b+?c", "\\t\\n", "(((a)))", "[a\\-c]+", "$", "a$b|c", "[+-]+",
    ],
)  # fmt: skip
def test_like_pythons_own(pattern: str) -> None:
    texts = [
        "",
        "a",
        "b",
        "c",
        "ab",
        "abc",
        "aab",
        "aabb",
        "abab",
        "a-c",
        "a.b",
        "123",
        "1a2b",
        "]a",
    ]
    texts += ["x y", "_ 1", "\t\n", "xyz", "a\nc", "a+b", "-", "ac", "b1 c", ",", "abcabc"]
    expected = re.compile(pattern, re.ASCII)
    python_dollar = [t for t in texts if not t.endswith("\n")]
    for text in python_dollar:
        assert matches(pattern, text) == bool(expected.fullmatch(text)), text


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[a", "[", "\\", "*a", "a|*", "a{", "a{x}", "a{2,1}", "a{1001}", "[b-a]",
        "(?i)a", "(?P<n>a)", "(?=a)", "\\1", "\\bA", "[[:alpha:]]", "\\pL", "\\xg0", "(" * 51,
        "a{1000}{1000}", "(a{1000}){9}", "(){1000}{1000}", "[^\\D]", "a" * 5_000, "[a-\\d]",
        "a{99999}",
    ],
)  # fmt: skip
def test_what_is_not_a_pattern_or_not_supported(pattern: str) -> None:
    with pytest.raises(PatternError):
        LinearPattern(pattern)


@given(st.text("ab()[]|*+?{}1,.^$\\-dw", max_size=12), st.text("ab1-", max_size=8))
def test_any_text_is_a_pattern_like_pythons_or_an_error(pattern: str, text: str) -> None:
    try:
        found = matches(pattern, text)
    except PatternError:
        return
    try:
        expected = re.compile(pattern, re.ASCII)
    except (re.error, RecursionError, OverflowError):
        return  # such as a repetition of a repetition, which RE2 knows
    assert found == bool(expected.fullmatch(text))


def test_patterns_that_take_others_for_ever() -> None:
    began = time.perf_counter()
    assert not matches("(a*)*b", "a" * 10_000)
    assert not matches("(a|aa)+b", "a" * 10_000)
    assert matches("(x?){500}x{500}", "x" * 500)
    assert time.perf_counter() - began < 5
