SELECT (SELECT count(*) FROM scheduled_jobs WHERE status = 'active' AND next_run_at <= now())
     + (SELECT count(*) FROM workflow_executions WHERE status = 'pending' AND NOT queued AND due_at <= now())
