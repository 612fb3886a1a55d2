"""Files of offsets: what is written is read, as Kafka's own tool does."""

from __future__ import annotations

import pytest

from quafka_client.offset_files import read, written

ONE = {("a,b", 0): 5, ("t", 1): 7, ("t", 0): 1 << 40}


def test_what_is_written_is_read() -> None:
    assert written({"g": {("t", 1): 7, ("t", 0): 5}}) == "t,0,5\nt,1,7\n"
    assert read(written({"g": ONE}), "g") == ONE
    both = written({"g": ONE, "h": {("t", 0): 2}})
    assert read(both, "g") == ONE
    assert read(both, "h") == {("t", 0): 2}
    assert read(both, "other") == {}


def test_a_file_of_kafkas_tool() -> None:
    assert read('"orders",0,15\n"orders",1,3\n', "g") == {("orders", 0): 15, ("orders", 1): 3}


@pytest.mark.parametrize("line", ["t,0", "t,0,x", "t,x,0", "t,0,-1", "t,-1,0", ",0,1", "g,t,0,1,2"])
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not TOPIC,PARTITION,OFFSET"):
        read(f"t,0,1\n{line}\n", "g")
