-- The rules of package queue (internal/queue), on one name at a time.
--
-- While a queue is in use the hash K has its state in the field s, and each claim
-- in a field named after its id, which has 8 characters or more. The zset Q has
-- the ids of waiting claims in order of arrival; it exists only while somebody
-- waits. The claims are the truth: scan makes the rest of s and Q anew from them.
-- When the queue is in use no more, nothing is left of it; see draw. The string
-- K:ID is the mark of a claim that must not enter any more; see bar.
-- Times are microseconds of the server's clock.
--
-- A claim that came to a free queue is alone there, mostly, and leaves soon. Until
-- it is renewed, or anything else happens to the queue, K is a string: the token,
-- and the claim as it came. That takes the server half the time. state makes it the
-- hash. The token stands for the time of the grant: that of a vote may be ahead of the
-- clock, and the claim's TTL is that much less.
--
--   s      LAST X KIND LIMIT USED N O SEQ MIN D H
--   claim  UNITS FLAGS SPOKE AT TTL GRANTED TOKEN SEQ ARRIVED MARK BOX OWNER

-- %d is twice as fast, but right only where a C long has 64 bits.
local wide = string.format('%d', 2 ^ 52) == '4503599627370496'
if wide then num = function(v) return string.format('%d', v) end end

local K, Q, id           -- the name at hand, and the caller's claim
local last               -- as in package queue
local x                  -- when the keys run out: NEVER while d is not 0
local kind, limit        -- as in package queue
local used, n, o         -- units held, claims that wait, of those with overtake
local seq                -- of the latest arrival
local min                -- no claim runs out before this; too low is right, too
local d                  -- as Declared in package queue
local h                  -- a claim that holds, or held, or nothing
local dirty, post        -- unsaved; messages to send
local mine               -- the caller's claim, if it was granted just now
local fresh              -- nothing was known of the name, and no token was drawn
local high, timely       -- the two numbers of M, once read; see draw
local back, floor        -- as that was: the clock was set back; the tokens of fresh names begin above
local released = {}      -- the last token of names that went out of use in this script, by K
local least = 0          -- that is drawn
local grant

local function unreadable(what) error('pawl: cannot read ' .. what .. ' of ' .. K) end

-- state returns the field s of k. text is k if that is a string, false if it is
-- known not to be one.
local function state(k, text)
  if text == nil then text = redis.call('MGET', k)[1] end -- GET would fail
  if not text then return redis.call('HGET', k, 's') end
  local s, h, claim = unfold(text)
  K = k
  if not s then unreadable('the state') end
  local left = redis.call('PTTL', k)
  redis.call('DEL', k)
  redis.call('HSET', k, 's', s, h, claim)
  if left >= 0 then redis.call('PEXPIRE', k, left) end
  return s
end

-- know reads M, once.
local function know()
  if high then return end
  high, timely = marks(redis.pcall('GET', M))
  back = now <= high
  floor = back and math.max(high, timely + SPARE) or now - 1
end

-- raise lets M be no less than last. v is the second number.
local function raise(v)
  high, timely = math.max(high, last), v
  redis.call('SET', M, num(high) .. ' ' .. num(timely))
end

-- load takes up a queue; s is that field.
local function load(k, claim, s)
  K, Q, id, dirty, post, mine = k, k .. ':q', claim, false, {}, nil
  fresh = not s and not released[K]
  if s then
    last, x, kind, limit, used, n, o, seq, min, d, h = string.match(s,
      '^(%d+) (%d+) (%l) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')
    last, x, limit, used, n, o = tonumber(last), tonumber(x), tonumber(limit), tonumber(used), tonumber(n), tonumber(o)
    seq, min, d = tonumber(seq), tonumber(min), tonumber(d)
  else
    if fresh then know() end
    last = released[K] or floor
    x, kind, limit, used, n, o, seq, min, d, h = 0, '-', 0, 0, 0, 0, 0, 0, 0, ''
  end
  if not last then unreadable('the state') end
end

-- done saves, and only then tells: what a script has written stays written
-- when a later command of it fails.
local function done(reply)
  if dirty and used + n == 0 then seq, min, h = 0, 0, '' end
  if dirty and used + n + d > 0 then
    redis.call('HSET', K, 's', string.format(wide and '%d %d %s %d %d %d %d %d %d %d %s'
      or '%.0f %.0f %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s', last, x, kind, limit, used, n, o, seq, min, d, h))
  elseif dirty then
    redis.call('DEL', K)
    if not fresh then
      released[K] = last
      know()
      if last > high then raise(timely) end
    end
    x = 0
  end
  dirty = false
  for i = 1, #post do
    local c, text = post[i][1], post[i][2]
    if text == 'g' then
      text = 'g ' .. c.id .. ' ' .. c.token .. ' ' .. n .. ' ' .. (c.alone and 1 or 0)
    end
    publish(c.box, text)
  end
  post = {}
  return reply
end

local function tell(c, text)
  if c.box ~= '-' then post[#post + 1] = {c, text} end
end

-- A claim is text: units, flags (o may overtake, a was granted all units, l
-- lingers; then a hyphen), the highest token
-- its owner spoke of, the time of its last renewal and the span it lives from
-- then on, time and token of its grant (0 while it waits), its place in the
-- order of arrival, time of arrival, the owner's mark or a hyphen, mailbox, owner
-- in JSON. Times and tokens stay texts here as well: numbers that long are not
-- printed as such.
local function parse(cid, s)
  local un, f, u, at, ttl, g, t, sq, a, mark, box, owner = string.match(s,
    '^(%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (.*)$')
  -- To take it for nothing could give its lock to another.
  if not un then unreadable('claim ' .. cid) end
  return {id = cid, text = s, units = un + 0, spoke = u, at = at, ttl = ttl, exp = at + ttl,
    held = g ~= '0', granted = g, token = t, seq = sq, arrived = a, mark = mark, box = box, owner = owner,
    over = string.find(f, 'o', 1, true) ~= nil, alone = string.find(f, 'a', 1, true) ~= nil, linger = string.find(f, 'l', 1, true) ~= nil}
end

local function pack(c)
  local flags = (c.over and 'o' or '') .. (c.alone and 'a' or '') .. (c.linger and 'l' or '') .. '-'
  return c.units .. ' ' .. flags .. ' ' .. c.spoke .. ' ' .. c.at .. ' ' .. c.ttl .. ' ' .. c.granted .. ' '
    .. c.token .. ' ' .. c.seq .. ' ' .. c.arrived .. ' ' .. c.mark .. ' ' .. c.box .. ' ' .. c.owner
end

-- span lets c live for ttl, a text, from now.
local function span(c, ttl)
  c.at, c.ttl, c.exp = stamp, ttl, now + ttl
end

-- renew does so unless that is less than c has: requests may overtake each other.
local function renew(c, ttl)
  if now + ttl > c.exp then span(c, ttl) end
end

-- speak notes a token, a text, that the owner of c, which holds, says was used.
local function speak(c, token)
  local v = math.min(tonumber(token), c.token + SPARE)
  if v > c.spoke + 0 then c.spoke = num(v) end
end

local function put(c) redis.call('HSET', K, c.id, pack(c)) end

local function find(cid)
  local s = redis.call('HGET', K, cid)
  return s and parse(cid, s)
end

-- owned finds the claim if its owner bears that mark: to all others it is not
-- there, and neither is one that lingers, which has no owner.
local function owned(cid, mark)
  local c = find(cid)
  return c and c.mark == mark and not c.linger and c
end

-- keep lets the keys outlive that time, and the last token, by two seconds, or by
-- up to a minute more, so that not every renewal moves their expiry.
local function keep(time)
  local need = math.max(last, time) + 2000000
  if x < need then
    x, dirty = need + 60000000, true
    redis.call('PEXPIRE', K, math.ceil((x - now) / 1000))
    if n > 0 then redis.call('PEXPIRE', Q, math.ceil((x - now) / 1000)) end
  end
end

-- live notes that c runs out at c.exp.
local function live(c)
  if c.exp < min then min, dirty = c.exp, true end
  keep(c.exp)
end

-- draw is R3, also when the server's clock is set back and nothing is known of the
-- name any more. M, one for all names, has two numbers, which only rise:
--
--   HIGH    no token that was drawn is above it, nor any that was used of a name
--           that went out of use by leave or break
--   TIMELY  the highest token that was drawn while the clock was above HIGH; those
--           drawn since have no spare ones
--
-- A name of which nothing is known was used up to HIGH; or, if its holder died
-- without a word, it may have used spare tokens, which are less than the clock
-- was when its keys ran out, and up to TIMELY + SPARE. So a clock above HIGH,
-- that runs on, is above them all. If it is not, it was set back, or stands
-- still (or tokens were ahead of it: a broken holder's spare ones are jumped
-- over). Then the name begins above both; there are no spare ones, so TIMELY does
-- not move, and HIGH rises by one with each of these tokens: they do not run away
-- from the clock. A name of which something is known needs no clock at all.
--
-- So M is written for each token, and not ahead, for those of the next second at
-- once: a name drew its token, nothing is left of it, and the clock is set back to
-- before that. If M were the same as without that token, the name would draw it
-- again, or would have to begin above M each time, which is to write M, too.
--
-- What remains: a holder has used spare tokens and died, its keys have run out,
-- and then the clock is set back to a time that is less than SPARE above HIGH, the
-- last token that was drawn of any name. And when M is lost (all data is, or an
-- operator deletes it) after the name's last token was drawn, the clock alone
-- decides.
local function draw(c)
  know()
  last = math.max(last + 1, now, least)
  c.alone = c.units == limit and not back
  if last > (back and high or timely) then raise(back and timely or last) end
  c.token, c.granted, c.spoke, c.held = last == now and stamp or num(last), stamp, '0', true
  fresh = false
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
  if c.id == h then h = '' end
  if c.held then
    used = used - c.units
  else
    n = n - 1
    if c.over then o = o - 1 end
    redis.call('ZREM', Q, c.id)
  end
end

-- scan is R1: it returns the claims that have not run out, and how many have. Of
-- each claim it reads what decides. Of all that is done in one step this takes
-- longest: some 5 µs for each claim. So more than twice what enter lets in are
-- refused: they are somebody else's.
local function scan()
  if redis.call('HLEN', K) > 2 * CROWD then error('pawl: too many claims for one name in ' .. K) end
  local all, kept, gone = redis.call('HGETALL', K), {}, {}
  used, n, o, min, dirty = 0, 0, 0, 0, true
  for i = 1, #all, 2 do
    if #all[i] > 7 then
      local un, f, at, ttl, g, sq = string.match(all[i + 1], '^(%d+) (%S+) %d+ (%d+) (%d+) (%d+) %d+ (%d+) %d+ %S+ %S+ .*$')
      if not un then unreadable('claim ' .. all[i]) end
      local exp, held, over = at + ttl, g ~= '0', string.byte(f) == 111 -- o
      if exp <= now then
        local c = parse(all[i], all[i + 1])
        retire(c, exp)
        gone[#gone + 1] = c
      else
        un = un + 0
        kept[#kept + 1] = {id = all[i], text = all[i + 1], units = un, exp = exp, held = held, seq = sq + 0}
        if held then
          used = used + un
        else
          n = n + 1
          if over then o = o + 1 end
        end
        if min == 0 or exp < min then min = exp end
      end
    end
  end
  for i = 1, #gone do
    redis.call('HDEL', K, gone[i].id)
    if gone[i].id == h then h = '' end
    if not gone[i].held then redis.call('ZREM', Q, gone[i].id) end
  end
  if redis.call('ZCARD', Q) ~= n then -- the server has evicted one of the keys
    redis.call('DEL', Q)
    for i = 1, #kept do
      if not kept[i].held then redis.call('ZADD', Q, kept[i].seq, kept[i].id) end
    end
    if d == 0 then redis.call('PEXPIRE', Q, math.ceil((x - now) / 1000)) end
  end
  return kept, #gone
end

-- bar keeps the caller's claim out of the queue for a minute: it has left, but
-- a request that enters it may still be under way, on another connection.
local function bar() redis.call('SET', K .. ':' .. id, '', 'PX', 60000) end

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
  local there = {['-'] = false}
  -- To ask is not to tell: a message that did arrive although the server (a
  -- proxy) counted no receiver must not have granted anything.
  local function reachable(c)
    if c.id == id or alone then return true end
    if there[c.box] == nil then there[c.box] = heard(c.box) end
    return there[c.box]
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

local function holds(text)
  local granted = text and string.match(text, '^%d+ %S+ %d+ %d+ %d+ (%d+) ')
  return granted and granted ~= '0'
end

-- some returns ids and texts of claims, among others: of all, or of 64 where
-- there are many. A queue's crowd shall not make each operation on it slow.
local function some()
  if redis.call('HLEN', K) > 128 then return redis.call('HRANDFIELD', K, 64, 'WITHVALUES') end
  return redis.call('HGETALL', K)
end

-- blocker returns id and text of a claim other than the caller's that holds.
local function blocker()
  if used == 0 then return '' end
  local s = h ~= '' and h ~= id and redis.call('HGET', K, h)
  if holds(s) then return h .. ' ' .. s end
  local list = some()
  for i = 1, #list, 2 do
    if #list[i] > 7 and list[i] ~= id and holds(list[i + 1]) then
      if h ~= id then h, dirty = list[i], true end
      return list[i] .. ' ' .. list[i + 1]
    end
  end
  for _, k in ipairs((scan())) do
    if k.held and k.id ~= id then
      h = k.id
      return k.id .. ' ' .. k.text
    end
  end
  return ''
end

-- stands says what is in the way, and when something may have run out.
local function stands(soon)
  return stamp .. ' ' .. (soon and num(math.max(now, min)) or '0') .. ' ' .. blocker()
end

-- status returns how c stands, the caller's claim or nil.
local function status(c)
  if not c then return 'g' end
  if c.held then
    return 'h ' .. c.token .. ' ' .. n .. ' ' .. (c.alone and 1 or 0)
  end
  local ahead = redis.call('ZRANK', Q, id)
  if not ahead then
    scan()
    ahead = redis.call('ZRANK', Q, id)
  end
  return 'w ' .. ahead .. ' ' .. num(last) .. ' ' .. stands(ahead < FRONT)
end

-- want tells the holders that they are wanted: of many, some.
local function want()
  local s = h ~= '' and redis.call('HGET', K, h)
  local list, holders = {h, s}, {}
  if not holds(s) or string.match(s, '^%d+') + 0 ~= used then list = some() end
  for i = 1, #list, 2 do
    if #list[i] > 7 and holds(list[i + 1]) then holders[#holders + 1] = parse(list[i], list[i + 1]) end
  end
  table.sort(holders, function(a, b) return a.seq + 0 < b.seq + 0 end)
  for _, k in ipairs(holders) do
    if not k.linger then tell(k, 'w ' .. k.id) end
  end
end
