"""Consumer groups of KIP-848, without I/O: `ConsumerGroup` in group.py. For one event loop.

The contract for callers that serve requests (`now` is by the event loop's clock):

1. `heartbeat(Beat, now, known) -> BeatAnswer` serves joins, heartbeats and leaves, with all their
   errors. `known` has the metadata of the topics in the member's subscription, if it sends one
   (None for a name: no such topic; a missing name: unchanged). If the group does not know the
   pattern (`knows(regex)`), match it first: `Beat.regex_topics`. A member without an id needs one
   first.
2. After each call: if `has_changes`, store what `take_change()` returns before sending the answer.
   Store changes in their order. If the log refuses one, call `not_stored(change)`.
3. `wake_at` and `tick(now)` end sessions and late revocations. Then `begin_target(now)`: if it
   returns a `Computation`, run its `steps()` in slices (or `run()` in a thread), then the generator
   `install(computation, now)` in slices, and store the `GroupChange` that it returns. Small groups
   compute theirs at once. If a computation fails, call `abandon`.
4. `subscriptions.wanted()` returns the names of the group's topics, `subscriptions.regexes` its
   patterns; `learn(known)` and `resolve(regex, names)` report changes of them, and raise the epoch.
5. `may_commit(epoch, member id, partitions)` and `may_fetch_offsets` check requests for offsets.
6. `restore(own, members, now)` continues a new group from its facts. `members` has one more fact,
   that of the topics, by the id "".

Other kinds of groups with assignment by the server use `assigning.AssigningGroup`; share groups use
the assignor `simple`.
"""
