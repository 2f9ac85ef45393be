local now = t[1] * 1000000 + t[2]
local stamp = t[1] .. string.sub('00000' .. t[2], -6) -- now, as text
local M = KEYS[#KEYS]

-- %d is twice as fast, but right only where a C long has 64 bits.
local wide = string.format('%d', 2 ^ 52) == '4503599627370496'
local function num(v) return string.format(wide and '%d' or '%.0f', v) end

-- height is the value of M, from the reply to GET. What is no time, or none that
-- can be, is as good as nothing.
local function height(reply)
  local v = type(reply) == 'string' and tonumber(reply)
  return v and v < NEVER and v or 0
end
