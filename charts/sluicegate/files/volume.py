"""Make the CheckpointVolume of a release, or take it away: `python volume.py make|remove`.

A process of one of the release's Jobs, with Python alone: it reads VOLUME (the resource as JSON), NAMESPACE
and TIMEOUT_S, and asks the API server as the pod's account. It ends with 1 and says why if it cannot.
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
    """Return the status and the answer; a server that does not answer is asked again until the deadline."""
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
            # 429 and 5xx: it is busy, or on its way
            if error.code != 429 and error.code < 500:
                return error.code, text
            said = f"{error.code}: {text}"
        except OSError as error:
            said = str(error)
        wait(f"the API server: {said}")


def wait(what):
    if time.monotonic() > DEADLINE:
        sys.exit(f"Given up after {os.environ['TIMEOUT_S']} s. The last was: {what}")
    print(what, flush=True)
    time.sleep(2)


def make():
    """Apply the volume; a kind that is not served yet is waited for."""
    path = f"checkpointvolumes/{NAME}?fieldManager=helm&force=true"
    while True:
        status, answer = ask("PATCH", path, VOLUME)
        if status != 404:
            break
        wait("the kind CheckpointVolume is not served yet")
    if status >= 300:
        sys.exit(f"The CheckpointVolume {NAME} was refused, and no job is affected: {answer}")
    print(f"CheckpointVolume {NAME} is as the release says")


def remove():
    """Take the volume away while the operator is there to let go of it."""
    for kind in ("streamingjobs", "savepoints"):
        status, answer = ask("GET", kind)
        if status == 404:
            continue  # the kinds are gone: somebody removed the definitions
        if status >= 300:
            sys.exit(f"{kind} could not be listed: {answer}")
        names = [item["metadata"]["name"] for item in answer["items"]]
        if names:
            sys.exit(
                f"There are {kind} in {NAMESPACE} yet: {', '.join(names)}. Without the operator they could"
                " not end as they should, nor be deleted. Nothing was removed. Delete them first"
                f" (kubectl delete {kind} -n {NAMESPACE} NAME); or, if another operator runs them:"
                " helm uninstall --no-hooks"
            )
    while True:
        status, answer = ask("DELETE", f"checkpointvolumes/{NAME}")
        if status == 404:
            print(f"CheckpointVolume {NAME} is gone")
            return
        if status >= 300:
            sys.exit(f"The CheckpointVolume {NAME} could not be deleted: {answer}")
        wait(f"the CheckpointVolume {NAME} waits for the operator: kubectl describe cpvol {NAME}")


if __name__ == "__main__":
    {"make": make, "remove": remove}[sys.argv[1]]()
