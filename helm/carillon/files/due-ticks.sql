SELECT (SELECT count(*) FROM (SELECT FROM due_ticks WHERE next_run_at <= now() LIMIT 100000) AS ticks)
     + (SELECT count(*) FROM (SELECT FROM active_executions WHERE status = 'pending' AND NOT queued AND due_at <= now() LIMIT 100000) AS runs)
