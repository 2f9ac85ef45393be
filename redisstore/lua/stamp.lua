local call = redis.call
local M = KEYS[#KEYS]
local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6)) -- now, as text

-- ahead reports whether the clock is above M, as M mostly is; see marks.
local function ahead(mark) return #stamp == 16 and (not mark or #mark == 33 and string.sub(mark, 1, 16) < stamp) end
