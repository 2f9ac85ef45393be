-- The rules of package queue (internal/queue), on one name at a time.
--
-- The hash K holds the state of the queue in the field s, and every claim in a
-- field named after its id, which has 8 characters or more; or, which costs less,
-- one claim that is alone in s. The zset Q holds the ids of waiting claims in
-- order of arrival; it exists only while somebody waits. The claims are the
-- truth: scan makes the rest of s and Q anew from them. A field named after an id
-- may also be the mark of a claim that must not enter any more, see bar.
-- Times are microseconds of the server's clock.
local K, Q, id           -- the name at hand, and the caller's claim
-- The field s is one of
--
--   f LAST X                                                   empty
--   h LAST X AT SPOKE TTL ID UNITS LIMIT FLAGS BOX OWNER       one claim, which holds
--   LAST X LIMIT USED N O SEQ MIN B D H                        any
--
-- The first two let enter and leave cut what they need instead of parsing: in
-- them X is in seconds and has 10 digits, TTL has 12, and LAST, AT and SPOKE have
-- 16. There are no marks then, the limit is the one that was asked for, and LAST
-- is the claim's token and, since it was granted at once, the time of its arrival
-- and grant.
local last               -- as in package queue
local x                  -- when the keys run out: whole seconds, NEVER while d is not 0
local limit              -- as in package queue
local d                  -- as Declared in package queue
local used, n, o         -- units held, claims that wait, of those with overtake
local seq                -- of the latest arrival
local min                -- no claim runs out before this; too low is right, too
local b                  -- when the first mark may go; 0 if there are none
local h                  -- a claim that holds, or held, or nothing
local sole, soletext     -- the claim in s, in its usual form, until it is put into a field of its own
local dirty, post        -- unsaved; messages to send
local mine               -- the caller's claim, if it was granted just now
local grant

-- %d is twice as fast, but right only where a C long has 64 bits.
local wide = string.format('%d', 2 ^ 52) == '4503599627370496'
local function num(v) return string.format(wide and '%d' or '%.0f', v) end
local function digits16(v) return v >= 1e15 and v < 1e16 end
local stamp = t[1] .. string.sub('00000' .. t[2], -6) -- now, as text

-- load takes up a queue; s is that field.
local function load(k, claim, s)
  K, Q, id, dirty, post, mine, sole, soletext = k, k .. ':q', claim, false, {}, nil, nil, nil
  limit, used, n, o, seq, min, b, d, h = 0, 0, 0, 0, 0, 0, 0, 0, ''
  local kind = s and string.sub(s, 1, 2) or 'f '
  if kind == 'f ' then
    last, x = string.match(s or 'f 0 0', '^f (%d+) (%d+)$')
  elseif kind == 'h ' then
    local at, spoke, ttl, flags, tail
    last, x, at, spoke, ttl, sole, used, limit, flags, tail = string.match(s,
      '^h (%d+) (%d+) (%d+) 0*(%d+) 0*(%d+) (%S+) (%d+) (%d+) (%S+) (.*)$')
    if last and used == limit then flags = string.gsub(flags, '%-', 'a-') end
    soletext = last and used .. ' ' .. flags .. ' ' .. spoke .. ' ' .. at .. ' ' .. ttl .. ' '
      .. last .. ' ' .. last .. ' 0 ' .. last .. ' ' .. tail
  else
    last, x, limit, used, n, o, seq, min, b, d, h = string.match(s,
      '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')
  end
  if not last then error('pawl: cannot read the state of ' .. K) end
  last, x = tonumber(last), (kind == 'f ' or kind == 'h ') and x * 1000000 or tonumber(x)
  limit, used, n, o = tonumber(limit), tonumber(used), tonumber(n), tonumber(o)
  seq, min, b, d = tonumber(seq), tonumber(min), tonumber(b), tonumber(d)
end

-- done saves, and only then tells: what a script has written stays written
-- when a later command of it fails.
local function done(reply)
  if dirty then
    if used + n == 0 then seq, min, h = 0, 0, '' end
    if soletext then redis.call('HSET', K, sole, soletext) end
    local s
    if used + n + b + d == 0 and digits16(last) and digits16(x) then
      s = 'f ' .. num(last) .. ' ' .. num(x / 1000000)
    else
      s = string.format(wide and '%d %d %d %d %d %d %d %d %d %d %s'
        or '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s', last, x, limit, used, n, o, seq, min, b, d, h)
    end
    redis.call('HSET', K, 's', s)
  end
  for i = 1, #post do
    local c, text = post[i][1], post[i][2]
    if text == 'g' then
      text = 'g ' .. c.id .. ' ' .. c.token .. ' ' .. n .. ' ' .. (c.alone and 1 or 0)
    end
    redis.pcall('PUBLISH', c.box, text)
  end
  return reply
end

local function tell(c, text)
  if c.box ~= '-' then post[#post + 1] = {c, text} end
end

-- A claim is text: units, flags (o may overtake, a was granted all units, l
-- lingers; then a hyphen), the highest token
-- its owner spoke of, the time of its last renewal and the span it lives from
-- then on, time and token of its grant (0 while it waits), its place in the
-- order of arrival, time of arrival, mailbox, owner in JSON. Times and tokens
-- stay texts here as well: numbers that long are not printed as such.
local function parse(cid, s)
  local un, f, u, at, ttl, g, t, sq, a, box, owner = string.match(s,
    '^(%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  -- To take it for nothing could give its lock to another.
  if not un then error('pawl: cannot read claim ' .. cid .. ' in ' .. K) end
  return {id = cid, text = s, units = un + 0, spoke = u, at = at, ttl = ttl, exp = at + ttl,
    held = g ~= '0', granted = g, token = t, seq = sq, arrived = a, box = box, owner = owner,
    over = string.find(f, 'o', 1, true) ~= nil, alone = string.find(f, 'a', 1, true) ~= nil, linger = string.find(f, 'l', 1, true) ~= nil}
end

local function pack(c)
  local flags = (c.over and 'o' or '') .. (c.alone and 'a' or '') .. (c.linger and 'l' or '') .. '-'
  return c.units .. ' ' .. flags .. ' ' .. c.spoke .. ' ' .. c.at .. ' ' .. c.ttl .. ' ' .. c.granted .. ' '
    .. c.token .. ' ' .. c.seq .. ' ' .. c.arrived .. ' ' .. c.box .. ' ' .. c.owner
end

-- span lets c live for ttl, a text, from now.
local function span(c, ttl)
  c.at, c.ttl, c.exp = stamp, ttl, now + ttl
end

-- renew does so unless that is less than c has: requests may overtake each other.
local function renew(c, ttl)
  if now + ttl > c.exp then span(c, ttl) end
end

-- speak notes a token, a text, that the owner of c spoke of.
local function speak(c, token)
  if token + 0 > c.spoke + 0 then c.spoke = token end
end

local function put(c)
  redis.call('HSET', K, c.id, pack(c))
  if c.id == sole then soletext, dirty = nil, true end
end

local function marked(s) return string.sub(s, 1, 5) == 'left ' end

local function find(cid)
  local s = cid == sole and soletext or redis.call('HGET', K, cid)
  return s and not marked(s) and parse(cid, s) or nil
end

-- keep lets the keys outlive that time, and the last token, by a minute.
local function keep(time)
  local need = math.max(last, time) + 60000000
  if x < need then
    x, dirty = math.floor(need / 1000000 + 60) * 1000000, true
    redis.call('PEXPIREAT', K, math.ceil(x / 1000))
    if n > 0 then redis.call('PEXPIREAT', Q, math.ceil(x / 1000)) end
  end
end

-- live notes that c runs out at c.exp.
local function live(c)
  if c.exp < min then min, dirty = c.exp, true end
  keep(c.exp)
end

local function draw(c)
  last = math.max(last + 1, now)
  c.token, c.granted, c.spoke, c.held = last == now and stamp or num(last), stamp, '0', true
  c.alone = c.units == limit
end

-- bound is the highest token that the owner of c may have used by that time.
local function bound(c, at)
  local high = math.max(c.token, c.spoke)
  if c.alone and not c.linger then
    high = math.max(high, c.token + math.min(SPARE, math.max(0, at - c.granted)))
  end
  return high
end

local function retire(c, at)
  if c.held then last = math.max(last, bound(c, at)) end
end

local function remove(c)
  redis.call('HDEL', K, c.id)
  dirty = true
  if c.id == sole then soletext = nil end
  if c.held then
    used = used - c.units
  else
    n = n - 1
    if c.over then o = o - 1 end
    redis.call('ZREM', Q, c.id)
  end
end

-- scan is R1: it answers the claims that have not run out in order of arrival,
-- and how many have.
local function scan()
  local all, kept, gone = redis.call('HGETALL', K), {}, {}
  if soletext then all[#all + 1], all[#all + 2] = sole, soletext end
  used, n, o, min, b, dirty = 0, 0, 0, 0, 0, true
  for i = 1, #all, 2 do
    if #all[i] > 7 and marked(all[i + 1]) then
      local till = tonumber(string.sub(all[i + 1], 6)) or 0
      if till <= now then
        redis.call('HDEL', K, all[i])
      elseif b == 0 or till < b then
        b = till
      end
    elseif #all[i] > 7 then
      local c = parse(all[i], all[i + 1])
      if c.exp <= now then
        retire(c, c.exp)
        gone[#gone + 1] = c
      else
        kept[#kept + 1] = c
        if c.held then
          used = used + c.units
        else
          n = n + 1
          if c.over then o = o + 1 end
        end
        if min == 0 or c.exp < min then min = c.exp end
      end
    end
  end
  table.sort(kept, function(a, b) return a.seq + 0 < b.seq + 0 end)
  for i = 1, #gone do
    redis.call('HDEL', K, gone[i].id)
    if gone[i].id == sole then soletext = nil end
    if not gone[i].held then redis.call('ZREM', Q, gone[i].id) end
  end
  if redis.call('ZCARD', Q) ~= n then -- the server has evicted one of the keys
    redis.call('DEL', Q)
    for i = 1, #kept do
      if not kept[i].held then redis.call('ZADD', Q, kept[i].seq, kept[i].id) end
    end
    redis.call('PEXPIREAT', Q, math.ceil(x / 1000))
  end
  return kept, #gone
end

-- bar keeps the caller's claim out of the queue for a minute: it has left, but
-- a request that enters it may still be under way, on another connection.
local function bar()
  if b > 0 and now >= b then scan() end
  local till = now + 60000000
  redis.call('HSET', K, id, 'left ' .. num(till))
  if b == 0 then b = till end
  dirty = true
  keep(now)
end

-- advance is R1, and R2 for what R1 has freed.
local function advance()
  if used + n > 0 and now >= min then
    local _, gone = scan()
    if gone > 0 then grant() end
  end
end

-- grant is R2 and R3. It looks at no more waiting claims than it must: while
-- nobody overtakes, at those it grants and the one after them.
--
-- Invariant: used exceeds limit only after that was lowered; only grant, enter
-- and resize add to it, and all check first. Claims for more than the limit
-- stand in nobody's way.
function grant()
  if n == 0 or used >= limit then return end
  local alone, blocked, silent, unseen = n == 1, false, {}, o
  local heard = {['-'] = false}
  -- To ask is not to tell: a message that did arrive although the server (a
  -- proxy) counted no receiver must not have granted anything.
  local function reachable(c)
    if c.id == id or alone then return true end
    if heard[c.box] == nil then
      local r = redis.pcall('PUBSUB', 'NUMSUB', c.box)
      heard[c.box] = not r.err and (tonumber(r[2]) or 0) > 0
    end
    return heard[c.box]
  end
  local function give(c)
    draw(c)
    used, n, h, dirty = used + c.units, n - 1, c.id, true
    if c.over then o = o - 1 end
    put(c)
    redis.call('ZREM', Q, c.id)
    if c.id == id then mine = c else tell(c, 'g') end
  end
  local at, step = 0, 1
  while used < limit and not (blocked and unseen == 0) do
    local ids = redis.call('ZRANGE', Q, at, at + step - 1)
    if #ids == 0 then
      if at < n then
        scan()
        return grant()
      end
      break
    end
    for i = 1, #ids do
      local c = find(ids[i])
      if not c or c.held then
        redis.call('ZREM', Q, ids[i])
        scan()
        return grant()
      end
      if c.over then unseen = unseen - 1 end
      local skip = true
      if c.units > limit then
        -- waits until the limit is raised
      elseif used + c.units > limit then
        blocked = true
      elseif blocked and not c.over then
        -- stays behind the one that does not fit
      elseif reachable(c) then
        give(c)
        skip = false
      else
        silent[#silent + 1] = c
      end
      if skip then at = at + 1 end
    end
    step = 16
  end
  local full = false
  for i = 1, #silent do
    if used + silent[i].units > limit then
      full = true
    elseif not full or silent[i].over then
      give(silent[i])
    end
  end
end

-- blocker answers id and text of a claim other than the caller's that holds.
local function blocker()
  if used == 0 then return '' end
  local s = h ~= '' and h ~= id and redis.call('HGET', K, h) -- never the sole claim
  local granted = s and not marked(s) and string.match(s, '^%d+ %S+ %d+ %d+ %d+ (%d+) ')
  if granted and granted ~= '0' then return h .. ' ' .. s end
  local best
  for _, k in ipairs((scan())) do
    if k.held and k.id ~= id and (not best or k.exp < best.exp) then best = k end
  end
  h, dirty = best and best.id or '', true
  return best and best.id .. ' ' .. best.text or ''
end

-- stands says what is in the way, and when something may have run out.
local function stands()
  local who = blocker() -- may correct min
  return stamp .. ' ' .. num(math.max(now, min)) .. ' ' .. who
end

-- status answers how c stands, the caller's claim or nil; ahead is the number of
-- those that wait before it, if known.
local function status(c, ahead)
  if not c then return 'g' end
  if c.held then
    return 'h ' .. c.token .. ' ' .. n .. ' ' .. (c.alone and 1 or 0)
  end
  ahead = ahead or redis.call('ZRANK', Q, id)
  if not ahead then
    scan()
    ahead = redis.call('ZRANK', Q, id)
  end
  return 'w ' .. ahead .. ' ' .. stands()
end

-- want tells the holders that they are wanted.
local function want()
  for _, k in ipairs((scan())) do
    if k.held then
      h = k.id
      if not k.linger then tell(k, 'w ' .. k.id) end
    end
  end
end
