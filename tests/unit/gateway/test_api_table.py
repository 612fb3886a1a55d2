"""The docstring of each handler, its declaration and the schemas agree; the table has them all."""

from __future__ import annotations

import pkgutil
import re
import sys
from types import ModuleType

import pytest

from quafka_gateway import handlers
from quafka_gateway.api import APIS
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_proto.message import Versions
from quafka_proto.schema import response_type

HELPERS = {
    "authorized",
    "client_context",
    "config_changes",
    "described_groups",
    "destinations",
    "features",
    "items",
    "kafka_api",
    "list_offsets_v0",
    "message_sets",
    "mutations",
    "order",
    "prediction",
    "produce_responses",
    "repeated_poll",
    "repeated_produce",
    "replicas",
    "share_offsets",
    "share_records",
    "token_refusal",
    "transaction_errors",
}
"""The modules beside the handlers that serve no API."""
_OPENING = re.compile(
    r"(?P<name>\w+) \(key (?P<key>\d+)(?P<own>, Quafka's own)?\), "
    r"versions? (?P<low>\d+)(?:-(?P<high>\d+))?: (?P<behaviour>\S.*)"
)
_LONG_POLL = "Long poll"


def _modules() -> dict[str, ModuleType]:
    names = {module.name for module in pkgutil.iter_modules(handlers.__path__)} - HELPERS
    return {name: sys.modules[f"{handlers.__name__}.{name}"] for name in sorted(names)}


def _api_of(module: ModuleType) -> AnyApi:
    api: AnyApi = module.API
    return api


def test_every_handler_is_in_the_table_under_its_own_name() -> None:
    for name, module in _modules().items():
        api = _api_of(module)
        assert APIS[api.key] is api
        assert name == re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
        assert api.handle is module.handle
    assert len(APIS) == len(_modules())
    assert list(APIS) == sorted(APIS)


@pytest.mark.parametrize("name", _modules())
def test_a_docstring_opens_with_what_the_handler_declares(name: str) -> None:
    module = _modules()[name]
    api, doc = _api_of(module), module.__doc__ or ""
    opening = _OPENING.match(doc)
    assert opening is not None, doc.splitlines()[0]
    low = int(opening["low"])
    assert opening["name"] == api.name
    assert int(opening["key"]) == api.key
    assert Versions(low, int(opening["high"] or low)) == api.versions
    assert bool(opening["own"]) == api.quafka_only
    assert (_LONG_POLL in doc) == api.long_poll


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_what_is_served_is_described_by_the_schemas(api: AnyApi) -> None:
    response = response_type(api.key)
    assert response is not None
    assert api.request.api_key == api.key
    assert response.__name__ == f"{api.name}Response"
    for version in (api.versions.low, api.versions.high):
        assert version in api.request.versions
        assert version in response.versions
