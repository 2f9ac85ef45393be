local call = redis.call
local M = KEYS[#KEYS]
local stamp = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6)) -- now, as text
