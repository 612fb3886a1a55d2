"""Logs in by kafka-python as each of the job's users; prints "ok" or the exception's name."""

from __future__ import annotations

import json
import sys
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """A token that is known."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def login(job: dict[str, Any]) -> str:
    options: dict[str, Any] = {
        "bootstrap_servers": job["bootstrap"],
        "security_protocol": "SASL_SSL" if job["ca"] else "SASL_PLAINTEXT",
        "ssl_cafile": job["ca_file"],
        "sasl_mechanism": job["mechanism"],
        "bootstrap_timeout_ms": 3_000,
    }
    if job["token"]:
        options["sasl_oauth_token_provider"] = Token(job["token"])
    else:
        options |= {"sasl_plain_username": job["user"], "sasl_plain_password": job["password"]}
    try:
        consumer = KafkaConsumer(**options)
        try:
            return "ok" if consumer.topics() else "empty"
        finally:
            consumer.close()
    except KafkaError as e:
        return type(e).__name__


for each in json.load(sys.stdin):
    print(login(each))
