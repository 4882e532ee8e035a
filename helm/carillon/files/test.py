"""`helm test`: the API is ready, and knows the admin's token where it was given one."""

import os
import urllib.request

token = os.environ.get("CARILLON_ADMIN_TOKEN")
for path in ("/health/ready", "/api/v1/me/") if token else ("/health/ready",):
    request = urllib.request.Request(os.environ["CARILLON_PUBLIC_URL"] + path)
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        print(path, answer.status, answer.read().decode())
