local match = string.match
local now = t[1] * 1000000 + t[2]

-- num is a number as text: as such, one that long would lose digits.
local function num(v) return string.format('%.0f', v) end

-- A mailbox is a channel, or, if it ends with a hash tag, one of a shard; '-' is nobody's.
-- What a service refuses is found by heartbeats.
local function publish(box, text)
  redis.pcall(string.byte(box, -1) == 125 and 'SPUBLISH' or 'PUBLISH', box, text) -- 125 is }
end

-- heard reports whether anybody listens to a mailbox. M has a hash tag on a cluster, where
-- a server knows only its own listeners: then anybody may.
local function heard(box)
  local shard = string.byte(box, -1) == 125
  if not shard and string.byte(M, -1) == 125 then return box ~= '-' end
  local r = redis.pcall('PUBSUB', shard and 'SHARDNUMSUB' or 'NUMSUB', box)
  return not r.err and (tonumber(r[2]) or 0) > 0
end

-- marks returns the two numbers of M, from the reply to GET; see draw. What no
-- tokens can be is as good as nothing.
local function marks(reply)
  local high, timely = match(type(reply) == 'string' and reply or '', '^(%d+) (%d+)$')
  high, timely = tonumber(high or 0), tonumber(timely or 0)
  if timely <= high and high < NEVER then return high, timely end
  return 0, 0
end

-- unfold returns what K would be as a hash: the field s, the claim's id, and the claim.
local function unfold(text)
  local token, ttl, claim, kind, units, limit, flags, tail = match(text, '^(%d+) 0*(%d+) (%S+) (%l) (%d+) (%d+) (%S+) (%S+ .*)$')
  if not token then return end
  local ends = token + ttl
  return token .. ' ' .. num(ends + 60000000) .. ' ' .. kind .. ' ' .. limit .. ' ' .. units .. ' 0 0 1 ' .. num(ends) .. ' 0 ' .. claim, claim,
    units .. ' ' .. flags .. ' 0 ' .. token .. ' ' .. ttl .. ' ' .. token .. ' ' .. token .. ' 1 ' .. token .. ' - ' .. tail
end
