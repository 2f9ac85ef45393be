-- KEYS memory M; ARGV nothing to look; or quarantine and span, to begin one; or
-- quarantine epoch mark and 1 or 0 (at once or not), to end it.
-- The reply is what holds then: MARK EPOCH QUARANTINE LEFT, with hyphens for nothing.

-- include stamp
-- include remembered
-- include head
-- include frugal

local text = call('GET', KEYS[1])
local high, timely = marks(redis.pcall('GET', M))
local epoch, mark = remembered(text)
local quarantine, run, ends = match(text or '', '^q (%S+) (%x+) (%d+)$')
if run ~= running() then quarantine = nil end

if not epoch and #ARGV == 2 and not quarantine then
  quarantine, ends = ARGV[1], num(now + ARGV[2])
  call('SET', KEYS[1], 'q ' .. quarantine .. ' ' .. running() .. ' ' .. ends)
elseif not epoch and #ARGV == 4 and quarantine == ARGV[1] and (ARGV[4] == '1' or now >= ends + 0) then
  high = math.max(high, ARGV[3])
  call('SET', M, num(high) .. ' ' .. num(timely))
  epoch, quarantine = ARGV[2], nil
  call('SET', KEYS[1], 'm ' .. epoch .. ' ' .. running() .. ' ' .. num(high))
end
return num(high) .. ' ' .. (epoch or '-') .. ' ' .. (quarantine or '-') .. ' ' .. (quarantine and num(math.max(0, ends - now)) or '0')
