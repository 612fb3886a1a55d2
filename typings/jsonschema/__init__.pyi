from collections.abc import Iterator
from typing import Any

from jsonschema.exceptions import ValidationError

class Draft202012Validator:
    def __init__(self, schema: Any) -> None: ...
    def iter_errors(self, instance: Any) -> Iterator[ValidationError]: ...
