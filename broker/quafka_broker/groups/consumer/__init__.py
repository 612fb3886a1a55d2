"""Consumer groups of KIP-848, without I/O: `ConsumerGroup` in group.py. For one event loop.

The contract, for whoever serves requests (`now` is of the event loop's clock):

1. `heartbeat(Beat, now, known) -> BeatAnswer` serves joins, heartbeats and leaves, and all their
   errors. `known` has the metadata of the topics in the member's subscription, if it sends one
   (None for a name: no such topic; a missing name: unchanged). Before a pattern that the group does
   not know (`knows(regex)`), match it: `Beat.regex_topics`. A member without an id needs one first.
2. After each call: if `has_changes`, `take_change()` is what to store; the answer waits for that.
   Store changes in their order. If the log refuses one, call `not_stored(change)`.
3. `wake_at` and `tick(now)` end sessions and late revocations. Then `begin_target(now)`: if it
   returns a `Computation`, run its `steps()` in slices (or `run()` in a thread), then the generator
   `install(computation, now)` in slices, and store the `GroupChange` that it returns. Small groups
   compute theirs at once. If a computation fails, call `abandon`.
4. `subscriptions.wanted()` names the topics that the group cares about, `subscriptions.regexes` its
   patterns; `learn(known)` and `resolve(regex, names)` bring news of them, and raise the epoch.
5. `may_commit(epoch, member id, partitions)` and `may_fetch_offsets` check members of offsets.
6. `restore(own, members, now)` continues a new group from its facts. `members` has one more fact,
   of the topics, by the id "".

Groups of another kind whose server assigns partitions have `assigning.AssigningGroup`; share groups
use the assignor `simple`.
"""
