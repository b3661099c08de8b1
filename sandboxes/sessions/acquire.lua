-- Take the session's lock, read all that resolve needs, and consume the turn's rebuild ticket: one trip.
-- KEYS: lock, binding, token, stale, turn
-- ARGV: owner ('' only looks), lease ms, turn ttl ms, consume ('1' or '0')
-- Returns {0} if another owner holds the lock, else
--   {1, binding, token, stale, refs, rebuild}; an absent value is '', an unreadable turn has refs '?'.
-- Safe to run twice for one owner: it keeps the lock that it has.
local owner = ARGV[1]
if owner ~= '' then
  local holder = redis.call('GET', KEYS[1])
  if holder and holder ~= owner then
    return {0}
  end
end

-- Everything is read before anything is written: an error must not leave the lock behind.
local binding = redis.call('GET', KEYS[2]) or ''
local token = redis.call('GET', KEYS[3]) or ''
local stale = redis.call('GET', KEYS[4]) or ''
local refs, rebuild = '', ''
local turn = redis.pcall('HMGET', KEYS[5], 'refs', 'rebuild')
if turn.err then
  refs = '?'
elseif turn[1] then
  refs, rebuild = turn[1], turn[2] or '0'
end

if owner ~= '' then
  redis.call('SET', KEYS[1], owner, 'PX', ARGV[2])
  if ARGV[4] == '1' and refs ~= '' and refs ~= '?' then
    redis.call('HSET', KEYS[5], 'rebuild', '0')
    if refs ~= '0' then -- a guard (see bind.lua) lapses on its own day, whoever comes by
      redis.call('PEXPIRE', KEYS[5], ARGV[3])
    end
  end
end
return {1, binding, token, stale, refs, rebuild}
