"""What Quafka uses of pyarrow.parquet."""

from collections.abc import Mapping, Sequence

from pyarrow import BufferOutputStream, Schema, Table

def write_table(
    table: Table,
    where: BufferOutputStream,
    *,
    compression: str,
    row_group_size: int,
    use_dictionary: Sequence[str],
    column_encoding: Mapping[str, str],
    coerce_timestamps: str,
) -> None: ...
def read_table(source: str) -> Table: ...
def read_schema(where: str) -> Schema: ...
