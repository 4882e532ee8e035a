"""The Lua scripts that run in Redis. They use the clock of Redis, so that the clocks of workers do not matter.

The names of keys are those of arq 0.28; ``tests/queue`` compares them with the installed version. In a Redis Cluster
all of them begin with the same hash tag: whatever the name of the queue has before ``arq:queue``.
"""

# The beginning of the names of keys, from the name of the queue.
_PREFIX = "local prefix = string.sub(KEYS[1], 1, -10)"

# KEYS: the queue, the channel that wakes workers.
# ARGV: a msgpack list with five values for each message (id, score, time to live in ms, length of the body, and the id
# of the message that it replaces, if any), and all bodies joined. Encoding two arguments costs the client a fraction of
# what thousands would. A message that replaces itself gets another score.
# Returns for each message 1 if it was queued now, 0 if it was there already. A message is there if both its body and
# its queue entry are: with one of them alone it would never be delivered.
RING = (
    _PREFIX
    + """
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local earliest = tonumber(head[2])
local answers, queued, wake, given, at = {}, {}, false, cmsgpack.unpack(ARGV[1]), 1
local replaced, keys = {}, {}
for i = 5, #given, 5 do
  if given[i] ~= '' then
    replaced[#replaced + 1] = given[i]
    for _, kind in ipairs({'arq:in-progress:', 'arq:job:', 'arq:retry:'}) do
      keys[#keys + 1] = prefix .. kind .. given[i]
    end
  end
end
if #replaced > 0 then
  redis.call('DEL', unpack(keys))
  redis.call('ZREM', KEYS[1], unpack(replaced))
end
for i = 1, #given, 5 do
  local id, score, body = given[i], given[i + 1], prefix .. 'arq:job:' .. given[i]
  local text = string.sub(ARGV[2], at, at + given[i + 3] - 1)
  at = at + given[i + 3]
  local is_new = redis.call('SET', body, text, 'PX', given[i + 2], 'NX')
  if not is_new and not redis.call('ZSCORE', KEYS[1], id) then
    is_new = redis.call('SET', body, text, 'PX', given[i + 2])
  end
  if is_new then
    queued[#queued + 1] = score
    queued[#queued + 1] = id
    wake = wake or earliest == nil or score < earliest
  end
  answers[#answers + 1] = is_new and 1 or 0
end
if #queued > 0 then redis.call('ZADD', KEYS[1], unpack(queued)) end
if wake then redis.call('PUBLISH', KEYS[2], '') end
return answers
"""
)

# KEYS: the queue. ARGV: owner, lease in ms, the largest number of messages to claim.
# Returns the claimed ids and bodies, and the ms until the next message is due (-1: nothing is queued).
# The score of a claimed message is set to the end of its lease: it is out of the way of other messages, and is
# delivered again if its worker dies. A message that arq's own worker has in progress is moved too, but not claimed.
CLAIM = (
    _PREFIX
    + """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = tonumber(ARGV[2])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])
local claimed, leased, gone, bodies = {}, {}, {}, {}
for i, id in ipairs(due) do bodies[i] = prefix .. 'arq:job:' .. id end
if #due > 0 then bodies = redis.call('MGET', unpack(bodies)) end
for i, id in ipairs(due) do
  if not bodies[i] then
    gone[#gone + 1] = id
  else
    leased[#leased + 1] = now + lease
    leased[#leased + 1] = id
    if redis.call('SET', prefix .. 'arq:in-progress:' .. id, ARGV[1], 'NX', 'PX', lease) then
      claimed[#claimed + 1] = id
      claimed[#claimed + 1] = bodies[i]
    end
  end
end
if #gone > 0 then redis.call('ZREM', KEYS[1], unpack(gone)) end
if #leased > 0 then redis.call('ZADD', KEYS[1], 'XX', unpack(leased)) end
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local wait = -1
if head[2] then wait = math.max(0, math.ceil(tonumber(head[2]) - now)) end
return {claimed, wait}
"""
)

# KEYS: the queue. ARGV: owner, a msgpack list of the lengths of the ids, all ids joined.
# Removes the messages that the owner still holds, and returns how many they were. One whose lease has ended may belong
# to another worker by now.
FINISH = (
    _PREFIX
    + """
local ids, progress, keys, finished, at = {}, {}, {}, {}, 1
for i, length in ipairs(cmsgpack.unpack(ARGV[2])) do
  ids[i] = string.sub(ARGV[3], at, at + length - 1)
  progress[i] = prefix .. 'arq:in-progress:' .. ids[i]
  at = at + length
end
for i, owner in ipairs(redis.call('MGET', unpack(progress))) do
  if owner == ARGV[1] then
    finished[#finished + 1] = ids[i]
    for _, kind in ipairs({'arq:in-progress:', 'arq:job:', 'arq:retry:'}) do
      keys[#keys + 1] = prefix .. kind .. ids[i]
    end
  end
end
if #finished > 0 then
  redis.call('DEL', unpack(keys))
  redis.call('ZREM', KEYS[1], unpack(finished))
end
return #finished
"""
)

# KEYS: the queue, the channel that wakes workers. ARGV: owner, id, delay in ms.
# Has the message delivered again after the delay, if the owner still holds it.
PUT_BACK = (
    _PREFIX
    + """
local progress = prefix .. 'arq:in-progress:' .. ARGV[2]
if redis.call('GET', progress) ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[3]), ARGV[2])
redis.call('DEL', progress)
redis.call('PUBLISH', KEYS[2], '')
return 1
"""
)

# KEYS: the queue, a key of our own. Writes as a ring does, and changes nothing in the queue.
# A Redis that is full, a replica, paused, or has a queue of the wrong type refuses this, and still answers every read.
PROBE = """
redis.call('ZADD', KEYS[1], 'XX', 0, 'carillon:probe')
redis.call('SET', KEYS[2], '1', 'PX', 60000)
return 1
"""

# KEYS: a counter. ARGV: the limit, the window in ms.
# Returns the ms until the window ends if the counter is over the limit, else 0.
# A counter that has lost its time to live would refuse requests for ever, so it is given one again.
COUNT = """
local count = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  left = tonumber(ARGV[2])
end
if count > tonumber(ARGV[1]) then return math.max(left, 1) end
return 0
"""
