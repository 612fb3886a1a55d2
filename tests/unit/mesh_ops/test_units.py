"""Sizes and times with units: what people may write for settings, configs, quotas and limits."""

from __future__ import annotations

import re

import pytest

from quafka.settings import known_to_any
from quafka.sources import dotted
from quafka_broker.groups.configs import GROUP_CONFIGS
from quafka_broker.topics.config_table import TOPIC_CONFIGS
from quafka_mesh_ops.units import BYTES, HOURS, MS, SECONDS, Unit, plain, unit_of, with_unit


@pytest.mark.parametrize(
    ("unit", "text", "number"),
    [
        (BYTES, "1GiB", "1073741824"),
        (BYTES, "1.5 GiB", "1610612736"),
        (BYTES, "10MB", "10000000"),
        (BYTES, "1_000kB", "1000000"),
        (BYTES, "512B", "512"),
        (MS, "7d", "604800000"),
        (MS, "250ms", "250"),
        (MS, "0.5s", "500"),
        (MS, "15min", "900000"),
        (SECONDS, "2h", "7200"),
        (SECONDS, "3000ms", "3"),
        (HOURS, "7d", "168"),
        (MS, "1_000", "1_000"),
        (MS, "-1", "-1"),
        (MS, "soon", "soon"),
        (MS, "", ""),
    ],
)
def test_a_value_becomes_a_plain_number_of_its_unit(unit: Unit, text: str, number: str) -> None:
    assert unit.plain(text) == number


@pytest.mark.parametrize(
    ("unit", "text", "reason"),
    [
        (BYTES, "5d", "d is not a unit of bytes (KiB, MiB, GiB, "),
        (MS, "1GiB", "GiB is not a unit of ms (ms, s, min, m, h, d)"),
        (BYTES, "1G", "G is not a unit of bytes"),  # of 1000 or of 1024?
        (BYTES, "1mb", "mb is not a unit of bytes"),
        (BYTES, "0.3KiB", "0.3KiB is not a whole number of bytes"),
        (SECONDS, "1500ms", "1500ms is not a whole number of seconds"),
        (HOURS, "90min", "90min is not a whole number of hours"),
        (MS, "1.0001s", "1.0001s is not a whole number of ms"),
    ],
)
def test_another_kind_or_no_whole_number_is_refused(unit: Unit, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        unit.plain(text)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("wal.segment.bytes", BYTES),
        ("wal.rewrite.bytes.per.second", BYTES),
        ("queued.max.request.bytes.per.ip", BYTES),
        ("producer_byte_rate", BYTES),
        ("log.cleaner.dedupe.buffer.size", BYTES),
        ("quota.window.size.seconds", SECONDS),
        ("retention.ms", MS),
        ("group.max.size", None),
        ("trace.spans.per.second", None),
        ("cleanup.policy", None),
    ],
)
def test_a_name_tells_the_unit(name: str, unit: Unit | None) -> None:
    assert unit_of(name) is unit


def test_every_setting_in_bytes_or_ms_has_a_unit() -> None:
    for name, known in known_to_any().items():
        counted = re.search(r"\bin (bytes|ms|seconds|minutes|hours)\b", known.help)
        if counted is not None and known.allowed[0] in "-0123456789":
            unit = unit_of(dotted(name))
            assert unit is not None, name
            assert unit.whole == counted[1], name


def test_only_numbers_have_units() -> None:
    """Whoever writes a size or a time for one of these configs writes a number."""
    kinds = {name: known.kind for name, known in TOPIC_CONFIGS.items()}
    kinds |= {name: known.kind for name, known in GROUP_CONFIGS.items()}
    for name, kind in kinds.items():
        if unit_of(name) is not None:
            assert kind.name in ("INT", "LONG"), name
        ends_in_one = name.endswith((".bytes", ".ms", ".seconds", ".minutes", ".hours"))
        assert (unit_of(name) is not None) == ends_in_one, name
    assert plain("cleanup.policy", "7d") == "7d"


def test_numbers_in_words_get_units() -> None:
    assert BYTES.show_all("65536 to 17179869184") == "64KiB to 16GiB"
    assert MS.show_all("-1 (for ever) or more") == "-1 (for ever) or more"
    assert MS.show_all("0 to 604800000") == "0 to 7d"
    assert MS.show((1 << 63) - 1) == "9223372036854775807", "no limit is no time"
    assert BYTES.show(1_048_588) == "1048588"
    assert BYTES.show(1_000_000_000) == "1GB", "shorter than its multiple of a power of 2"
    assert BYTES.show(1_024_000) == "1000KiB"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "0", "0"),
        ("retention.ms", "", ""),
        ("flush.ms", "9223372036854775807", "9223372036854775807"),
        ("producer_byte_rate", "1e+15", "1e+15"),
        ("cleanup.policy", "delete", "delete"),
        ("min.insync.replicas", "3600000", "3600000"),
    ],
)
def test_what_people_read_has_units(name: str, value: str, shown: str) -> None:
    assert with_unit(name, value) == shown
    assert plain(name, shown) == value
