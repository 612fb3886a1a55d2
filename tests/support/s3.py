"""S3 servers on loopback, which ask for credentials and check them.

moto's is always there; versitygw and MinIO where they are installed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.needs import program
from tests.support.ports import lasting_port

_BUCKET = "lake"
_USER, _PASSWORD = "analyst", "a-long-password"
_START_SECONDS = 30.0
_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
_UNCHECKED_CALLS = 4  # those below that make the user
_SERVER = """
import io, sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication as Application
from moto.server import ThreadedMotoServer

# moto compares an object's ETag and replaces it in two steps, which threads do at the same time.
lock, handle = threading.Lock(), Application.__call__
def one_at_a_time(self, environ, start_response):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length:
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with lock:
        return list(handle(self, environ, start_response))
Application.__call__ = one_at_a_time

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class S3:
    """The server: a bucket, and what a client's environment needs."""

    url: str
    environment: dict[str, str]


@contextmanager
def s3_server() -> Generator[S3]:
    """Run the server."""
    with open_s3_server(_UNCHECKED_CALLS) as endpoint:
        yield S3(f"s3://{_BUCKET}/quafka", _environment(endpoint))


@contextmanager
def open_s3_server(unchecked: float = math.inf) -> Generator[str]:
    """Run the server without a bucket; yield its URL. `unchecked`: so many calls need no key."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(unchecked)},
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()
            server.kill()


@contextmanager
def versitygw_server(folder: Path) -> Generator[S3]:
    """versitygw over files in a folder. Needs `versitygw`."""
    (folder / "versitygw").mkdir()
    port = lasting_port()
    keys = ["--access", _USER, "--secret", _PASSWORD, "--port", f"127.0.0.1:{port}"]
    command = [program("versitygw"), *keys, "posix", str(folder / "versitygw")]
    with _server(command, port, {}) as server:
        yield server


@contextmanager
def minio_server(folder: Path) -> Generator[S3]:
    """MinIO over files in a folder. Needs `minio`."""
    port = lasting_port()
    command = [
        program("minio"), "server", "--quiet", "--address", f"127.0.0.1:{port}",
        "--console-address", "127.0.0.1:0", str(folder / "minio"),
    ]  # fmt: skip
    secrets = {"MINIO_ROOT_USER": _USER, "MINIO_ROOT_PASSWORD": _PASSWORD}
    with _server(command, port, secrets) as server:
        yield server


@contextmanager
def _server(command: list[str], port: int, environment: dict[str, str]) -> Generator[S3]:
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    ) as server:
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _make_bucket(endpoint)
            secrets = {"AWS_ACCESS_KEY_ID": _USER, "AWS_SECRET_ACCESS_KEY": _PASSWORD}
            where = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}
            yield S3(f"s3://{_BUCKET}/quafka", {**where, **secrets})
        finally:
            server.kill()


def _make_bucket(endpoint: str) -> None:
    """Make the bucket once the server listens; these two cannot be started on port 0."""
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1",
        aws_access_key_id=_USER, aws_secret_access_key=_PASSWORD,
    )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(BotoCoreError, ClientError):
            client.create_bucket(Bucket=_BUCKET)
            return
        time.sleep(0.05)
    message = f"the S3 server has not started in {_START_SECONDS} s"
    raise TimeoutError(message)


def _environment(endpoint: str) -> dict[str, str]:
    """Make the bucket, and a user who may use it."""
    about = {
        "endpoint_url": endpoint, "region_name": "us-east-1",
        "aws_access_key_id": "nobody", "aws_secret_access_key": "nothing",
    }  # fmt: skip
    boto3.client("s3", **about).create_bucket(Bucket=_BUCKET)
    iam = boto3.client("iam", **about)
    iam.create_user(UserName="analyst")
    iam.put_user_policy(UserName="analyst", PolicyName="all", PolicyDocument=json.dumps(_ALL))
    key = iam.create_access_key(UserName="analyst")["AccessKey"]
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }
