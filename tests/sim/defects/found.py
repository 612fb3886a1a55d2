"""A seed that finds each defect, by `python -m tests.sim.defects`; rarer ones have none here."""

FIRST_SEEDS = {
    "acknowledged before the fsync": 159,
    "a restart forgets producers": 109,
    "acknowledged before the object exists": 101,
    "a takeover does not raise the epoch": 0,
    "objects are collected one commit too early": 30,
    "a route is stale after a move": 4,
    "the last stable offset is ignored": 37,
    "aborted transactions are not listed": 2,
    "offsets of a transaction are visible before its end": 2,
    "producers of old epochs are not fenced": 2,
    "share acknowledgements are not durable": 110,
    "DeleteRecords deletes one record too many": 3,
    "a lease is not honoured": 9,
    "deleted records stay in the cache": 3,
    "read_committed reads one batch too far": 37,
    "the cache forgets aborted transactions": 32,
    "a revoked right is kept": 1,
    "a gateway does not notice its own produces": 1,
    "a restart forgets that records were deleted": 52,
}
