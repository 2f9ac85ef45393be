local call, match = redis.call, string.match
local now = t[1] * 1000000 + t[2]
local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6)) -- now, as text
local M = KEYS[#KEYS]

-- num is a number as text: as such, one that long would lose digits.
local function num(v) return string.format('%.0f', v) end

-- height is the value of M, from the reply to GET. What is no time, or none that
-- can be, is as good as nothing.
local function height(reply)
  local v = type(reply) == 'string' and tonumber(reply)
  return v and v < NEVER and v or 0
end
