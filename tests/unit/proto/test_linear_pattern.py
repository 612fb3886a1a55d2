"""Patterns match as RE2's and Python's do, in time in proportion to the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_loop.slices import at_once
from quafka_proto.linear_pattern import LinearPattern, PatternError


def matches(pattern: str, text: str) -> bool:
    return at_once(LinearPattern(pattern).matches(text))


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "abc", ".*", "a.c", "a|b|", "(a|b)*c", "a+b?", "a{2}", "a{1,2}b{0,}", "(?:ab)+",
        "[abc]+", "[^abc]+", "[a-c1-3]*", "[]a]+", "[a-]+", "[\\]a]+", "\\d+", "\\w*\\s\\D",
        "^abc$", "^$", "a^b", "[\\w-]+", "[\\d.]+", "\\x61b", "a\\.b", "(a*)*b", "()*a", "(a|)+",
        "a*?b+?c", "\\t\\n", "(((a)))", "[a\\-c]+", "$", "a$b|c", "[+-]+",
        "a{", "a{x}", "{", "(?i)A[B-C]+", "(?i:A)b", "(?P<n>a)b", "\\bab\\b.*", ".*\\b",
        "a\\Bb.*", "[^\\D]+", "[\\W]+", "(?s)a.c", "\\Aabc", "(?m:^)a[\\s\\S]c$", "[\\da-c]+",
        "\\141b",
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
        "(", ")", "a)", "[a", "[", "\\", "*a", "a|*", "a{2,1}", "a{1001}", "[b-a]", "(?P<>a)",
        "(?x)a", "(?P<n>a)(?<n>b)", "(?=a)", "\\1", "[[:alpha]", "[[:alphx:]]", "\\p{Greek}",
        "\\xg0", "\\x{110000}", "\\x{", "(" * 51, "a{1000}{1000}", "(a{1000}){9}", "\\Cx", "(?i",
        "((){1000}){1000}", "a" * 5_000, "[a-\\d]", "a{99999}", "a**", "a+{2}", "\\pQ", "[\\b]",
        "[" + "ab" * 2_000 + "]",
    ],
)  # fmt: skip
def test_what_is_not_a_pattern_or_not_supported(pattern: str) -> None:
    with pytest.raises(PatternError):
        LinearPattern(pattern)


@given(st.text("ab()[]|*+?{}1,.^$\\-dw", max_size=12), st.text("ab1-", max_size=8))
def test_any_text_is_a_pattern_like_pythons_or_an_error(pattern: str, text: str) -> None:
    if "{," in pattern:
        return  # are characters in RE2
    try:
        found = matches(pattern, text)
    except PatternError:
        return
    try:
        expected = re.compile(pattern, re.ASCII)
    except (re.error, RecursionError, OverflowError):
        return  # such as a repetition of a repetition, which RE2 knows
    assert found == bool(expected.fullmatch(text))


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("(?i)Top-[k]", "tOP-K", "top-l"),
        ("a(?i)b(?-i)c", "aBc", "aBC"),
        ("(?i:a|B)c", "bc", "bC"),
        ("(?i)[^a]", "b", "A"),
        ("(?<name>a)(?P<other>b)", "ab", "ba"),
        ("[[:alpha:][:digit:]_]+", "aB3_", "a-b"),
        ("[[:^alpha:]]", "1", "a"),
        ("\\pL\\p{Lu}\\PN", "éÉ-", "éé-"),
        ("\\p{^L}", "1", "é"),
        ("[\\pL1]+", "é1", "é2"),
        ("\\Qa.b*\\Ec", "a.b*c", "axb*c"),
        ("\\Qa", "a", "b"),
        ("\\x{1F600}\\x41", "\U0001f600A", "A"),
        ("\\102\\0", "B\0", "B0"),
        ("(?s)a.b", "a\nb", "a\n\nb"),
        ("(?m)a$\\n^b", "a\nb", "a b"),
        ("\\Aa\\z", "a", "b"),
        ("orders\\b.*", "orders-eu", "orders2"),
        ("a{,2}", "a{,2}", "aa"),
        ("x{a}", "x{a}", "x"),
        ("(?U)a+", "aa", ""),
        ("\\p{Any}", "é", ""),
    ],
)
def test_the_rest_of_re2s_syntax(pattern: str, matching: str, other: str) -> None:
    assert matches(pattern, matching)
    assert not matches(pattern, other)


def test_what_is_kept_of_a_pattern_is_bounded() -> None:
    pattern = LinearPattern("(.*x){300}.*")
    for number in range(300):
        text = "".join(chr(0x100 + number * 50 + each) for each in range(50))
        assert not at_once(pattern.matches(text + "x" * (number % 250)))
    assert pattern._kept < 60_000  # pyright: ignore[reportPrivateUsage]
    assert at_once(pattern.matches("x" * 300))


def test_patterns_that_take_others_for_ever() -> None:
    """A matcher that tries all ways would not end within the time limit of a test, nor ever."""
    assert not matches("(a*)*b", "a" * 10_000)
    assert not matches("(a|aa)+b", "a" * 10_000)
    assert matches("(x?){500}x{500}", "x" * 500)
