-- KEYS: turn. ARGV: call id. Returns {refs, rebuild}, empty once no turn is left.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
if redis.call('HGET', KEYS[1], 'call') ~= ARGV[1] then
  if redis.call('HINCRBY', KEYS[1], 'refs', -1) <= 0 then
    redis.call('DEL', KEYS[1])
    return {}
  end
  redis.call('HSET', KEYS[1], 'call', ARGV[1])
end
return redis.call('HMGET', KEYS[1], 'refs', 'rebuild')
