"""The scripts that run inside Redis, where several commands must be atomic."""

from __future__ import annotations

BOUNDS = b"""
local found = {}
for i, stream in ipairs(KEYS) do
  local info = redis.pcall('XINFO', 'STREAM', stream)
  if info.err then
    if string.find(info.err, 'no such key', 1, true) then
      found[i] = {'', '0-0', 0, 0, '0-0'}
    else
      found[i] = {info.err}
    end
  else
    local first, last, length, added, deleted = '', '', 0, -1, ''
    for at = 1, #info, 2 do
      local name, value = info[at], info[at + 1]
      if name == 'first-entry' and value then first = value[1]
      elseif name == 'last-generated-id' then last = value
      elseif name == 'length' then length = value
      elseif name == 'entries-added' then added = value
      elseif name == 'max-deleted-entry-id' then deleted = value end
    end
    found[i] = {first, last, length, added, deleted}
  end
end
return found
"""
"""The bounds of the streams KEYS: for each, first id, last id that was ever added, length, entries
ever added (-1: the server does not count) and highest deleted id; or one error. Used instead of
XINFO, whose answer has two whole entries."""

APPEND = b"""
local stream, recent, before = KEYS[1], KEYS[2], KEYS[3]
local per_ms = tonumber(ARGV[1])
local producer, epoch = ARGV[2], tonumber(ARGV[3])
local first, last = tonumber(ARGV[4]), tonumber(ARGV[5])
local most, expiry = tonumber(ARGV[6]), ARGV[7]
local batches = {}
if producer ~= '' then
  local known = redis.call('HGET', recent, producer) or redis.call('HGET', before, producer)
  local known_epoch = nil
  if known then
    for word in string.gmatch(known, '[^ ]+') do
      if known_epoch then batches[#batches + 1] = word else known_epoch = tonumber(word) end
    end
  end
  if known_epoch and epoch < known_epoch then return {'epoch', tostring(known_epoch)} end
  if known_epoch == epoch then
    for _, word in ipairs(batches) do
      local a, b, id = string.match(word, '^(%d+):(%d+):(.+)$')
      if tonumber(a) == first and tonumber(b) == last then return {'repeated', id} end
    end
    local newest = string.match(batches[#batches], '^%d+:(%d+):')
    local expected = (tonumber(newest) + 1) % 2147483648
    if first ~= expected then return {'sequence', string.format('%.0f', expected)} end
  else
    if first ~= 0 then return {known_epoch and 'sequence' or 'unknown', '0'} end
    batches = {}
  end
end
local ms, sequence = 0, 0
local info = redis.pcall('XINFO', 'STREAM', stream)
if info.err then
  if not string.find(info.err, 'no such key', 1, true) then return redis.error_reply(info.err) end
else
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then
      local a, b = string.match(info[at + 1], '^(%d+)-(%d+)$')
      ms, sequence = tonumber(a), tonumber(b) + 1
    end
  end
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if now > ms then ms, sequence = now, 0 end
local id = nil
local at = 8
while at <= #ARGV do
  if sequence >= per_ms then ms, sequence = ms + 1, 0 end
  local size = tonumber(ARGV[at])
  local added = string.format('%.0f-%.0f', ms, sequence)
  redis.call('XADD', stream, added, unpack(ARGV, at + 1, at + size))
  id = id or added
  at = at + size + 1
  sequence = sequence + 1
end
if producer ~= '' then
  batches[#batches + 1] = string.format('%.0f:%.0f:%s', first, last, id)
  local kept = table.concat(batches, ' ', math.max(1, #batches - 4))
  if redis.call('HLEN', recent) >= most then redis.call('RENAME', recent, before) end
  redis.call('HSET', recent, producer, string.format('%.0f %s', epoch, kept))
  redis.call('PEXPIRE', recent, expiry)
end
return {'added', id}
"""
"""Adds a record batch to the stream KEYS[1], and remembers it next to the stream in the same step.

KEYS[2] and KEYS[3] are hashes of idempotent producers: their epoch and their last five batches, as
"epoch first:last:id ...". When the first hash is full it replaces the second, so at most twice the
limit of producers are kept, and those that were silent for longest are dropped.

ARGV: offsets of a millisecond; producer ("": none), epoch, first and last sequence; producers kept
in a hash; their lifetime in ms; then, for each record, the number of its fields and values, and
these. Entries get consecutive offsets, in the current millisecond or after the last entry.

Returns what happened and a detail: added, repeated (the first id); epoch, sequence (the expected
one), unknown (the producer is not known, and this is not its first batch)."""

FLAGS = {BOUNDS: b"#!lua flags=no-writes\n", APPEND: b""}
"""First lines for Redis 7 and later: a read-only script also runs in a full Redis."""
