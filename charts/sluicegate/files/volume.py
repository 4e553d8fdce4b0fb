"""Create or delete the CheckpointVolume of a release: `python volume.py make|remove`.

Hook Jobs of the release run it with plain Python. It reads VOLUME (the resource as JSON), NAMESPACE and
TIMEOUT_S from the environment and uses the API server with the pod's ServiceAccount. It exits with 1 and
the reason if it fails.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
VOLUME = json.loads(os.environ["VOLUME"])
NAME = VOLUME["metadata"]["name"]
NAMESPACE = os.environ["NAMESPACE"]
DEADLINE = time.monotonic() + float(os.environ["TIMEOUT_S"])
APPLY = "application/apply-patch+yaml"


def ask(method, path, body=None):
    """Return the status and the response; retries until the deadline while the server does not answer."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    url = f"https://{host}:{port}/apis/sluicegate.dev/v1alpha1/namespaces/{NAMESPACE}/{path}"
    request = urllib.request.Request(url, body and json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text().strip()}")
    if body:
        request.add_header("Content-Type", APPLY)
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            # 429 and 5xx: the server is busy or starting
            if error.code != 429 and error.code < 500:
                return error.code, text
            reason = f"{error.code}: {text}"
        except OSError as error:
            reason = str(error)
        wait(f"the API server: {reason}")


def wait(what):
    if time.monotonic() > DEADLINE:
        sys.exit(f"Timed out after {os.environ['TIMEOUT_S']} s, waiting for {what}")
    print(what, flush=True)
    time.sleep(2)


def make():
    """Apply the volume; waits until its kind is served."""
    path = f"checkpointvolumes/{NAME}?fieldManager=helm&force=true"
    while True:
        status, answer = ask("PATCH", path, VOLUME)
        if status != 404:
            break
        wait("the kind CheckpointVolume is not served yet")
    if status >= 300:
        sys.exit(f"The CheckpointVolume {NAME} was rejected; no job is affected: {answer}")
    print(f"CheckpointVolume {NAME} is configured")


def remove():
    """Delete the volume while the operator still runs and removes its finalizer."""
    for kind in ("streamingjobs", "savepoints"):
        status, answer = ask("GET", kind)
        if status == 404:
            continue  # the CRD was deleted
        if status >= 300:
            sys.exit(f"{kind} could not be listed: {answer}")
        names = [item["metadata"]["name"] for item in answer["items"]]
        if names:
            sys.exit(
                f"{NAMESPACE} still has {kind}: {', '.join(names)}. Without the operator they could"
                " neither finish nor be deleted. Nothing was removed. Delete them first"
                f" (kubectl delete {kind} -n {NAMESPACE} NAME); or, if another operator runs them:"
                " helm uninstall --no-hooks"
            )
    while True:
        status, answer = ask("DELETE", f"checkpointvolumes/{NAME}")
        if status == 404:
            print(f"CheckpointVolume {NAME} is deleted")
            return
        if status >= 300:
            sys.exit(f"The CheckpointVolume {NAME} could not be deleted: {answer}")
        wait(f"the CheckpointVolume {NAME} waits for the operator: kubectl describe cpvol {NAME}")


if __name__ == "__main__":
    {"make": make, "remove": remove}[sys.argv[1]]()
