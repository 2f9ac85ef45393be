-- A claim is ARGV from a on: its id; for how many ms its keys are kept; and the
-- claim. That is text: ttl, of 12 digits, id kind units limit flags box owner.
-- A queue that is not in use, as it mostly is, is taken by a short way. A number
-- that was a text stays one there: to print it takes as long as a command.

-- occupy lets the claim at a hold the queue, with the token stamp.
local function occupy(key, a) call('SET', key, stamp .. ' ' .. ARGV[a + 2], 'PX', ARGV[a + 1]) end

-- share lets the server say whether it has the memory for one more claim of the
-- queue that is text, if it is: state begins by deleting, and then all is allowed.
local function share(key, a, text)
  if text and string.sub(text, 31, 31 + #ARGV[a]) ~= ARGV[a] .. ' ' then call('SET', key, '', 'NX') end
end

-- reserve notes in M that the token stamp is drawn; see draw.
local function reserve() call('SET', M, stamp .. ' ' .. stamp) end
