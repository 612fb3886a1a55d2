"""The tables in docs/reliability.md have the figures of docs/reliability.json."""

from __future__ import annotations

from tests.sim.defects.found import FIRST_SEEDS
from tests.support.figures import PAGE, TABLES, read, rendered


def test_the_page_has_the_figures_of_the_commands() -> None:
    page = PAGE.read_text()
    assert rendered(page) == page, "write it again: python -m tests.support.figures"


def test_every_table_has_its_place_and_figures() -> None:
    page, figures = PAGE.read_text(), read()
    for name in TABLES:
        assert f"<!-- {name} -->" in page
        assert f"<!-- end of {name} -->" in page
        assert name in figures, f"no command has recorded {name!r}"


def test_no_seed_breaks_a_promise_and_every_defect_is_found() -> None:
    figures = read()
    assert figures["simulation"]["failed"] == 0
    assert figures["simulation"]["seeds"] >= 1_000
    found = {each["name"] for each in figures["defects"]["defects"]}
    assert found == FIRST_SEEDS.keys()
