-- KEYS: turn. ARGV: call id, ttl ms. Returns {refs, rebuild}.
-- The ticket is issued only when the first reference is taken. One call id counts once.
if redis.call('HGET', KEYS[1], 'call') ~= ARGV[1] then
  if redis.call('HINCRBY', KEYS[1], 'refs', 1) == 1 then
    redis.call('HSET', KEYS[1], 'rebuild', '1')
  end
  redis.call('HSET', KEYS[1], 'call', ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('HMGET', KEYS[1], 'refs', 'rebuild')
