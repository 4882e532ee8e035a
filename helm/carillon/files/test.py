"""The check of `helm test`: the API is ready, accepts the admin token if there is one, and a schedule fires."""

import json
import os
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

URL = os.environ["CARILLON_PUBLIC_URL"]
PATIENCE_SECONDS = 120


def admin_token() -> str:
    """Return the token of the environment or of a file; empty if there is none."""
    file = os.environ.get("CARILLON_ADMIN_TOKEN_FILE")
    return Path(file).read_text().strip() if file else os.environ.get("CARILLON_ADMIN_TOKEN", "")


TOKEN = admin_token()


def call(method: str, path: str, body: Any = None) -> Any:
    """Return the answer to a request; an error of HTTP raises."""
    request = urllib.request.Request(URL + path, method=method)
    request.add_header("Content-Type", "application/json")
    if TOKEN:
        request.add_header("Authorization", f"Bearer {TOKEN}")
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(request, data, timeout=10) as response:
        text = response.read().decode()
        print(method, path, response.status, flush=True)
        return json.loads(text) if text else None


def see_a_schedule_fire() -> None:
    """Create a schedule that fires once, wait until its run has succeeded, and delete both."""
    name = f"helm-test-{uuid.uuid4().hex[:8]}"
    nodes = [{"id": "start", "type": "trigger_schedule"}, {"id": "nothing", "type": "core.noop"}]
    edges = [{"from": "start", "to": "nothing"}]
    workflow = call("POST", "/api/v1/workflows/", {"name": name, "nodes": nodes, "edges": edges})
    try:
        body = {"name": name, "workflow_id": workflow["id"], "interval_seconds": 1, "total_repeats": 1}
        schedule = call("POST", "/api/v1/schedules/", body)
        wait_for_success(schedule["id"])
    finally:
        call("DELETE", f"/api/v1/workflows/{workflow['id']}/")


def wait_for_success(schedule_id: str) -> None:
    """Wait until a run has succeeded; one that failed, or none in time, raises."""
    for _ in range(PATIENCE_SECONDS):
        runs = call("GET", f"/api/v1/schedules/{schedule_id}/runs/")["items"]
        if any(run["status"] == "success" for run in runs):
            return
        time.sleep(1)
    raise SystemExit(f"The schedule did not fire within {PATIENCE_SECONDS} s. Are workers running? Runs: {runs}")


call("GET", "/health/ready")
if TOKEN:
    call("GET", "/api/v1/me/")
    if os.environ.get("CARILLON_SCHEDULES_ENABLED") == "false":
        print("settings.schedulesEnabled is false: no schedule is tried")
    else:
        see_a_schedule_fire()
        print("A schedule fired.")
