local match = string.match
local now = t[1] * 1000000 + t[2]

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

-- unfold returns what K would be as a hash: the field s, the claim's id, and the claim.
local function unfold(text)
  local token, ttl, claim, kind, units, limit, flags, tail = match(text, '^(%d+) 0*(%d+) (%S+) (%l) (%d+) (%d+) (%S+) (%S+ .*)$')
  if not token then return end
  local ends = token + ttl
  return token .. ' ' .. num(ends + 60000000) .. ' ' .. kind .. ' ' .. limit .. ' ' .. units .. ' 0 0 1 ' .. num(ends) .. ' 0 ' .. claim, claim,
    units .. ' ' .. flags .. ' 0 ' .. token .. ' ' .. ttl .. ' ' .. token .. ' ' .. token .. ' 1 ' .. token .. ' - ' .. tail
end
