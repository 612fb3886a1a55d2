"""Attacks on a broker and a gateway, each beside a bystander that must notice nothing.

An attack is one function in a file of this folder (`attacks_*.py`; all are imported):

    @attack("a hundred topics are deleted at a time", part_of_tests=True)
    def delete_many(arena: Arena) -> None:
        with arena.connect() as client:
            ...

What it raises fails it. `arena` (`arena.py`) has the addresses, raw sockets, clients and topics.
The runner (`runner.py`) adds the checks that hold for every attack: the bystander (`bystander.py`),
another org with a listener of its own (`beside.py`), loses no record and sees no error; neither
process' event loop has a turn above 250 ms (`quafka_loop_longest_turn_seconds`, measured in the
process, without what other work on the machine took, see `inject/`); memory returns. The bystander
has a producer and a consumer at 100 records a second, and makes small calls, joins and heartbeats
(`small_ops.py`). Their latencies are printed beside those of a phase without an attack
(`account.py`), and not judged; but an attack that holds something may require that calls of others
are answered meanwhile (`Arena.others_are_served`). An attack may state other limits, with a reason,
and arguments of the broker and gateway it needs; attacks with the same arguments share a cluster.

Then all attacks of Kafka clients are played again with clients that log in (`logins.py`): over TLS
with SCRAM, with all rights in an org of their own, beside a bystander of another org; and what they
have sent is sent again by connections that do not log in (`before_login.py`).

`make hostile` runs all of them and prints tables, `make hostile ARGS="--only NAME"` some,
`ARGS="--mode open"` or `"--mode login"` one half, `ARGS="--code DIR"` against the code of another
checkout, and `ARGS="--another-gateway"` with a second bystander at another gateway. `make test-all`
runs those that are marked `part_of_tests` (`test_catalogue.py`). With `HOSTILE_STACKS=FILE` in the
environment, the stacks of long turns are in files of that name.
"""
