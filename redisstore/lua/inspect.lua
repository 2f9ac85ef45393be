-- KEYS hash; ARGV '' or 'break'

local now = t[1] * 1000000 + t[2]

-- include machine

load(KEYS[1], '', redis.call('HGET', KEYS[1], 's'))
advance()
local changed = dirty
if used + n + d == 0 then return done(num(now) .. ' 0 0') end
local out = {num(now) .. ' ' .. num(limit) .. ' ' .. num(d)}
for _, c in ipairs((scan())) do
  if ARGV[1] == '' then
    out[#out + 1] = c.id .. ' ' .. c.text
  elseif c.held then
    out[#out + 1] = c.id .. ' ' .. c.text
    retire(c, c.exp) -- until it is told, or its time is up, it may use tokens
    remove(c)
    tell(c, 'b ' .. c.id)
  end
end
if ARGV[1] == '' then
  dirty = changed -- scan has found nothing that advance had not
else
  grant()
end
return done(table.concat(out, '\n'))
