"""Filters of records and the selection that an address has, beside naive evaluations."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_client.errors import ClientError
from quafka_client.filters import with_header, with_key
from quafka_client.json_path import MOST_JSON, PathError, fulfilling, parse
from quafka_client.records import FetchedBatches
from quafka_console.data.messages.decoding import Best, Choice, Part, Progress, decode
from quafka_console.data.messages.selection import Selection
from quafka_proto.record_codec import Record, build_batch

ORDER = {
    "order": {"id": 7, "state": "paid", "rush": True, "note": None, "total": 12.5},
    "items": [{"sku": "abc-1"}, {"sku": "xyz"}],
    "at": "2026-11-28T06:15",
    "odd name.x": {"$": 1},
    "digits": "7",
    "many": "9" * 5_000,
}


def holds(text: str, value: Any) -> bool:
    return all(each.holds(value) for each in parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "order.id=7", "order.id = 7.0", "order.id>=7 and order.id<8", "items[0].sku~abc",
        "items[1].sku=xyz", "order.state!=open", "order.rush=true", "order.note=null",
        "order.total>12", "at>2026-11-01", 'at < "2026-12"', "order", "$.order.id=7", "$",
        '"odd name.x"."$"=1', "digits=7", 'digits="7"', "order.rush~tru", "order.state!~x",
        'order.state="paid" and order', "  order.id=7  ", "order.total=1.25e1",
        "digits>6", "digits>=7.0", "digits<10", 'digits>"10"', "digits>-1",
    ],
)  # fmt: skip
def test_conditions_that_hold(text: str) -> None:
    assert holds(text, ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "order.id=8", 'order.id="7"', "order.missing", "order.missing!=1", "items[2]", "order[0]",
        "items.sku", "order.rush=1", "order.rush>0", "order.state>7", "order.note=0",
        "order.id=7 and order.id=8", "items~abc", "order=null", "$.x", "order.state=PAID",
        "digits=7.0", "digits>7", "at>2026", "order.note>=0", "digits>10 and digits",
        "many>1", "many<1",
    ],
)  # fmt: skip
def test_conditions_that_do_not_hold(text: str) -> None:
    assert not holds(text, ORDER)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", 1, "expected a field's name"),
        ("order..id=7", 7, "expected a field's name"),
        ("order.id=", 10, "expected a value after `=`"),
        ("items[x]=1", 6, "expected a number in brackets"),
        ("items[-1]=1", 6, "expected a number in brackets"),
        ("name=John Smith", 16, "expected `and`"),
        ("a=1 or b=2", 7, "expected `and`"),
        ("a=1 and ", 9, "expected a field's name"),
        ('a="x', 3, "expected a string in double quotes"),
        ('a="\\q"', 3, "expected a string in double quotes"),
        ("=7", 1, "expected a field's name"),
        ("a b", 4, "expected `and`"),
        ("a==2", 3, 'there is no `==`: write `=`, or "=…" for such a text'),
        ("a !== b", 5, "there is no `!==`: write `!=`"),
    ],
)
def test_errors_name_the_place(text: str, place: int, what: str) -> None:
    with pytest.raises(PathError, match=f"character {place}: ") as found:
        parse(text)
    assert what in str(found.value)


@given(st.text(max_size=60) | st.text('a.[]0=~!<>" \\and$', max_size=40))
def test_any_text_is_parsed_or_refused_with_a_sentence(text: str) -> None:
    try:
        conditions = parse(text)
    except PathError:
        return
    assert conditions
    values: list[Any] = [ORDER, [], 1, "x", None]
    for value in values:
        all(each.holds(value) for each in conditions)


SCALARS = st.none() | st.booleans() | st.integers(-20, 20) | st.text("ab1", max_size=3)
NAMES = st.sampled_from(["a", "b", "c d", "$", '"', "é"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@st.composite
def values_and_paths(draw: st.DrawFn) -> tuple[Any, list[str | int]]:
    """A value, and a path that it has, or has in part."""
    value: Any = draw(VALUES)
    path: list[str | int] = []
    at: Any = value
    for _ in range(draw(st.integers(0, 4))):
        step: Any
        if at and isinstance(at, dict):
            step = draw(st.sampled_from(sorted(cast("dict[str, Any]", at))))
        elif at and isinstance(at, list):
            step = draw(st.integers(0, len(cast("list[Any]", at))))
        else:
            step = draw(NAMES | st.integers(0, 2))
        path.append(step)
        try:
            at = cast("Any", at)[step]
        except (KeyError, IndexError, TypeError):
            break
    return value, path


def written(path: list[str | int]) -> str:
    return "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{json.dumps(step)}" for step in path
    )


def number_if_compared_with_one(value: Any, literal: Any) -> Any:
    is_one = isinstance(literal, int) and isinstance(value, str) and value.isdecimal()
    return int(value) if is_one else value


def naive(value: Any, path: list[str | int], operator: str, literal: Any) -> bool:
    for step in path:
        fits = isinstance(value, dict) if isinstance(step, str) else isinstance(value, list)
        if not fits:
            return False
        try:
            value = value[step]
        except (KeyError, IndexError):
            return False
    same_kind = type(value) is type(literal)
    if operator in ("=", "!="):
        equal = same_kind and value == literal
        if isinstance(value, str) and not isinstance(literal, str):
            equal = value == json.dumps(literal)
        return equal == (operator == "=")
    if operator in ("~", "!~"):
        needle = literal if isinstance(literal, str) else json.dumps(literal)
        text = value if isinstance(value, str) else json.dumps(value)
        searched = "" if isinstance(value, dict | list) else text
        return (needle in searched) == (operator == "~")
    value = number_if_compared_with_one(value, literal)
    same_kind = type(value) is type(literal)
    if not same_kind or not isinstance(value, int | str) or isinstance(value, bool):
        return False
    before: dict[str, bool] = {
        "<": value < literal, "<=": value <= literal, ">": value > literal, ">=": value >= literal
    }  # fmt: skip
    return before[operator]


@given(
    st.lists(values_and_paths(), min_size=1, max_size=8),
    st.sampled_from(["=", "!=", "~", "!~", "<", "<=", ">", ">="]),
    st.integers(-20, 20) | st.text("ab1", max_size=3),
)
def test_a_value_filter_over_decoded_records_equals_a_naive_evaluation(
    values: list[tuple[Any, list[str | int]]], operator: str, literal: Any
) -> None:
    path = values[0][1]
    text = f"{written(path)}{operator}{json.dumps(literal)}"
    records = [
        Record(at, at, None, json.dumps(value).encode(), []) for at, (value, _) in enumerate(values)
    ]
    best = Best(100, 1 << 20)
    decode(
        FetchedBatches(memoryview(bytes(build_batch(records)))),
        Part(0, 0, len(records)),
        Choice(fulfilling(parse(text))),
        best,
        Progress(),
        latest=False,
    )
    assert [each.offset for each in best.records()] == [
        at for at, (value, _) in enumerate(values) if naive(value, path, operator, literal)
    ]


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=4),
            st.lists(
                st.tuples(st.text("hx", max_size=2), st.none() | st.binary(max_size=3)), max_size=3
            ),
        )
    ),
    st.text("hx", min_size=1, max_size=2),
    st.text(max_size=2),
)
def test_filters_of_keys_and_headers_equal_a_naive_evaluation(
    records: list[tuple[bytes | None, list[tuple[str, bytes | None]]]], name: str, part: str
) -> None:
    part = part.strip()
    wish = part.encode()
    for key, headers in records:
        record = Record(0, 0, key, None, headers)
        assert with_key(f"={part}")(record) == (key == wish)
        if not part.startswith("="):
            assert with_key(part)(record) == (key is not None and wish in key)
        assert with_header(name)(record) == (name in dict(headers))
        its = [value for each, value in headers if each == name and value is not None]
        assert with_header(f"{name}={part}")(record) == (wish in its)
        assert with_header(f"{name}~{part}")(record) == any(wish in value for value in its)


def test_hostile_values_match_nothing() -> None:
    wanted = fulfilling(parse("$"))
    for value in (
        b"[" * 100_000, b"{" * 50_000, b'{"a":' * 90_000, b"1" * 900_000, b"\xff\xfe", b"",
        b"[" + b"1," * MOST_JSON + b"1]", None,
    ):  # fmt: skip
        assert not wanted(Record(0, 0, None, value, []))
    assert wanted(Record(0, 0, None, b"[" * 500 + b"]" * 500, []))
    header = ("h", b"x" * (8 << 20))
    assert with_header("h~xx")(Record(0, 0, None, None, [header]))
    many: list[tuple[str, bytes | None]] = [("h", None)] * 100_000
    assert not with_header("h=1")(Record(0, 0, None, None, many))
    with pytest.raises(PathError, match="at most 1,000 characters"):
        parse("a" * 2_000)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9).map(str.strip)


@given(
    st.sampled_from(["newest", "oldest", "offset", "time"]),
    st.sampled_from([20, 50, 100, 500]),
    st.fixed_dictionaries(
        dict.fromkeys(["until", "partition", "contains", "key", "header", "value"], TEXTS)
    ),
    st.sampled_from(["", "committed"]),
)
def test_the_address_has_the_whole_selection(
    place: str, count: int, texts: dict[str, str], isolation: str
) -> None:
    at = "7" if place in ("offset", "time") else ""
    chosen = Selection("t", place=place, at=at, isolation=isolation, count=count, **texts)
    assert Selection.of(chosen.query()) == chosen


def test_a_selection_says_what_is_wrong_with_it() -> None:
    chosen = Selection("t", partition="0, 3,5-7").span()
    assert chosen.partitions is not None
    assert [number for number in range(9) if number in chosen.partitions] == [0, 3, 5, 6, 7]
    for wrong, sentence in (
        (Selection("t", partition="x"), "is not a partition"),
        (Selection("t", partition="1-"), "is not a partition"),
        (Selection("t", partition=",".join("1" * 101)), "more than 100"),
        (Selection("t", place="offset", at="-1"), "is not an offset"),
        (Selection("t", until="soon"), "is not a time"),
    ):
        with pytest.raises(ClientError, match=sentence):
            wrong.span()
    # ListOffsets gives times below 0 a meaning of their own: the end, and the start
    assert Selection("t", place="time", at="1969-12-31T23:59:59.999").span().since == 0
    with pytest.raises(ClientError, match="character 3"):
        Selection("t", value="a=").choice()
    assert Selection("t").choice().wanted is None
    assert Selection.of({"topic": "t", "offset": "5"}).place == "offset"
    assert Selection.of({"topic": "t", "from": "x", "count": "7", "isolation": "y"}) == Selection(
        "t"
    )
