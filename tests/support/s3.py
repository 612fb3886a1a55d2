"""An S3 server on loopback: moto's, over real HTTP, which asks for credentials and checks them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3

_BUCKET = "lake"
_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
_UNCHECKED_CALLS = 4  # those below that make the user
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
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
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_UNCHECKED_CALLS)},
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            yield S3(f"s3://{_BUCKET}/quafka", _environment(endpoint))
        finally:
            server.stdin.close()
            server.kill()


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
