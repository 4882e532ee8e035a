"""The check of `helm test`: the API is ready, and accepts the admin token if there is one."""

import os
import urllib.request

token = os.environ.get("CARILLON_ADMIN_TOKEN")
for path in ("/health/ready", "/api/v1/me/") if token else ("/health/ready",):
    request = urllib.request.Request(os.environ["CARILLON_PUBLIC_URL"] + path)
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as response:
        print(path, response.status, response.read().decode())
