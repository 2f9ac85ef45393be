-- KEYS hash, on a cluster also the zset, M; ARGV id mark kind units token ttl box owner

-- include stamp
-- include head
-- include machine
-- include frugal

load(KEYS[1], ARGV[1], state(KEYS[1]))
advance()
if used + n + d > 0 and kind ~= ARGV[3] then return done('l ' .. num(limit) .. ' 0 ' .. kind) end
local c, token = find(id), tonumber(ARGV[5])
if not c or c.linger or not c.held then return done('g') end
local again = c.mark == ARGV[2]
if c.units ~= tonumber(ARGV[4]) or not again and (token < math.max(c.token, c.spoke) or token > c.token + SPARE) then
  return done('r ' .. stamp .. ' 0 ' .. c.id .. ' ' .. c.text)
end
if again then
  renew(c, ARGV[6])
else
  tell({box = c.box}, 'b ' .. c.id) -- who owned it
  last = math.max(last, token, bound(c, now))
  c.mark, c.owner, dirty = ARGV[2], ARGV[8], true
  local alone = used == c.units -- others may hold beside it after a change of the limit
  draw(c)
  c.alone = c.alone and alone
  span(c, ARGV[6]) -- also if it had more
end
c.box = ARGV[7]
put(c)
live(c)
return done(status(c))
