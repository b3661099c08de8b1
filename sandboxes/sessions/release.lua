-- Give the lock back; on the way keep a fresh traffic token and, after a failed rebuild, the ticket.
-- KEYS: lock, binding, token, turn
-- ARGV: owner, binding document that the token belongs to, encrypted token ('' keeps), restore ticket ('1' or '0')
-- Returns 1, 0 if nobody holds the lock, -1 if somebody else does; then nothing was changed.
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder and -1 or 0
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '' and redis.call('GET', KEYS[2]) == ARGV[2] then
  redis.call('SET', KEYS[3], ARGV[3])
end
if ARGV[4] == '1' and redis.call('EXISTS', KEYS[4]) == 1 then
  redis.pcall('HSET', KEYS[4], 'rebuild', '1')
end
return 1
