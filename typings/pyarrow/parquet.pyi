"""What Quafka uses of pyarrow.parquet."""

from collections.abc import Mapping, Sequence
from typing import Self

from pyarrow import BufferOutputStream, Schema, Table

class ParquetWriter:
    def __init__(
        self,
        where: BufferOutputStream,
        schema: Schema,
        *,
        compression: str,
        use_dictionary: Sequence[str],
        column_encoding: Mapping[str, str],
        coerce_timestamps: str,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...
    def write_table(self, table: Table, row_group_size: int) -> None: ...

def read_table(source: str) -> Table: ...
def read_schema(where: str) -> Schema: ...
