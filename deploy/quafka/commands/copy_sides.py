"""The two clusters of `quafka topics copy` and `quafka mirror`."""

from __future__ import annotations

import argparse
import os

from quafka.commands.options import bootstrap
from quafka.commands.run import complain, security
from quafka.commands.security import VARIABLES, load, sends_password_in_clear
from quafka.copying.job import Side


def sides(options: argparse.Namespace) -> tuple[Side, Side]:
    """The source and the target. Raises UsageError and ClientError."""
    source = Side(bootstrap(options), security(options), options.timeout)
    if options.to is None:
        return source, source
    # The variables with a login are for the source: its password does not go to another cluster.
    environment = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    loaded = load(options.to_command_config, environment)
    for warning in loaded.warnings:
        complain(warning)
    for host, _ in options.to:
        if sends_password_in_clear(loaded.security, host):
            complain(f"the login travels unencrypted to {host}; use SASL_SSL, or SCRAM")
    return source, Side(options.to, loaded.security, options.timeout)
