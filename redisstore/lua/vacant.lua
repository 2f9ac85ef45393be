-- The queue is empty, as it mostly is, or new. Numbers that are texts stay texts
-- here: to print one costs as much as a command. Claims that may live long go
-- the other way, so that leaving lets the keys vanish earlier.
local call, sub = redis.call, string.sub
local stamp = t[1] .. (#t[2] == 6 and t[2] or sub('00000' .. t[2], -6))

-- vacant tells whether a queue with the state s can be taken the short way by
-- the claim that is text.
local function vacant(s, text)
  return (not s or string.byte(s) == 102 and sub(s, 3, 18) < stamp) -- 102 is f
    and sub(text, 18, 29) + 0 <= 600000000 and #stamp == 16
end

-- occupy lets the claim hold it, with the token stamp.
local function occupy(key, s, text)
  local x = s and sub(s, 20, 29)
  local soon = not s or (x - t[1] - 61) * 1000000 < sub(text, 18, 29) + 0
  if soon then x = string.format('%.0f', t[1] + math.floor(sub(text, 18, 29) / 1000000) + 120) end
  call('HSET', key, 's', 'h ' .. stamp .. ' ' .. x .. ' ' .. stamp .. ' ' .. text)
  if soon then call('PEXPIREAT', key, x .. '000') end
end
