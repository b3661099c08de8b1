-- KEYS: turn. ARGV: ttl ms. Never creates a turn. Returns {refs, rebuild}, empty if there is none.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
redis.call('HSET', KEYS[1], 'rebuild', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HMGET', KEYS[1], 'refs', 'rebuild')
