"""The table of schema modules is whole, and importing the codec imports none of them."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import quafka_proto.schema
from quafka_proto.message import Request, Response
from quafka_proto.schema import MODULES, request_type, response_type


def test_every_module_is_in_the_table() -> None:
    found = {module.name for module in pkgutil.iter_modules(quafka_proto.schema.__path__)}
    assert found == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_describes_the_keys_that_the_table_says(name: str) -> None:
    module = import_module(f"quafka_proto.schema.{name}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    for base in (Request, Response):
        keys = sorted(message.api_key for message in own if issubclass(message, base))
        assert keys == sorted(MODULES[name])


def test_types_are_found_by_key() -> None:
    for keys in MODULES.values():
        for key in keys:
            request, response = request_type(key), response_type(key)
            assert request is not None
            assert response is not None
            assert request.__name__.removesuffix("Request") == response.__name__.removesuffix(
                "Response"
            )
            assert (request.api_key, request.versions) == (key, response.versions)
            assert request.flexible == response.flexible


@pytest.mark.parametrize("key", [-1, 4, 999])
def test_an_api_that_is_not_described_has_no_type(key: int) -> None:
    assert request_type(key) is None
    assert response_type(key) is None


def test_schemas_are_imported_when_first_asked_for() -> None:
    program = """if True:
        import sys
        import quafka_proto.codec, quafka_proto.headers
        def loaded():
            return sorted(name for name in sys.modules if name.startswith("quafka_proto.schema."))
        assert loaded() == [], loaded()
        frame = bytes.fromhex("000c 0000 00000001 ffff")
        header, _ = quafka_proto.headers.decode_request_header(frame)
        assert loaded() == ["quafka_proto.schema.groups"], loaded()
    """
    subprocess.run([sys.executable, "-c", program], check=True)
