local call, match = redis.call, string.match
local now = t[1] * 1000000 + t[2]
local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6)) -- now, as text
local M = KEYS[#KEYS]

-- num is a number as text: as such, one that long would lose digits.
local function num(v) return string.format('%.0f', v) end

-- marks returns the two numbers of M, from the reply to GET; see draw. What no
-- tokens can be is as good as nothing.
local function marks(reply)
  local high, timely = match(type(reply) == 'string' and reply or '', '^(%d+) (%d+)$')
  high, timely = tonumber(high or 0), tonumber(timely or 0)
  if timely <= high and high < NEVER then return high, timely end
  return 0, 0
end
