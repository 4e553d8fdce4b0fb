"""The kind cluster: created, awaited, described and removed.

Names are Sluicegate's own and the kubeconfig is in the work folder: no other cluster and no `~/.kube` is
touched.
"""

import json
import os
import time
from pathlib import Path
from typing import Final

from infra.offline.kind_node import docker_engine, network, node_image
from infra.toolchain.go_build import Program
from infra.toolchain.go_programs import CLI_TOOLS, NO_CLUSTER, link_tool
from infra.toolchain.host import HostError, Steps, answers, may_install, run
from infra.workspace import work_folder

NAME: Final = "sluicegate"
NODE: Final = f"{NAME}-control-plane"

NODE_VARIABLE: Final = "SLUICEGATE_NODE"
"""`stock`: kind's node image; `own`: the one that is built here; or an image's name. Default: see `choice`."""

_STOCK: Final = "stock"
_OWN: Final = "own"
_PROVISIONER: Final = "deployment/local-path-provisioner"
_DENYING_PORT: Final = 5353
_DENYING: Final = f""".:{_DENYING_PORT} {{
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
_SYSTEM: Final = ("-n", "kube-system")
_CONTROL_PLANE: Final = ("-l", "tier=control-plane")
_POLL_S: Final = 0.5
_READY_TIMEOUT_S: Final = 300
_STEPS: Final = 5


def kubeconfig() -> Path:
    """Return the kubeconfig of the cluster."""
    return work_folder() / "kind" / "kubeconfig"


def settings() -> dict[str, object]:
    """Return the cluster's configuration for kind (kind.x-k8s.io/v1alpha4).

    It has one node. The API server listens on the loopback address only, which is kind's default. etcd
    does not sync to disk: after a power cut the cluster is created again in a minute.
    """
    etcd = {"local": {"extraArgs": [{"name": "unsafe-no-fsync", "value": "true"}]}}
    patches = [
        {"kind": "ClusterConfiguration", "etcd": etcd},
        # the kubelet refuses cgroup v1 by default; no effect with v2
        {"kind": "KubeletConfiguration", "failCgroupV1": False},
    ]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": NAME,
        "nodes": [{"role": "control-plane"}],
        "kubeadmConfigPatches": [json.dumps(patch) for patch in patches],
    }


def up() -> None:
    """Create the cluster unless it exists, and wait until it is ready.

    Raises HostError or BuildError; the message names what is missing.
    """
    steps = Steps(_STEPS)
    steps.begin("kubectl, helm and kind")
    for name in CLI_TOOLS:
        link_tool(name)
    steps.begin("a Docker engine")
    print(f"Docker {docker_engine.up()}", flush=True)
    image = _node_image(steps)
    steps.begin("the network, closed to the outside")
    _close(own=image == node_image.name())
    steps.begin("the cluster")
    if exists():
        _wake(image)
    else:
        _create(image)
        _deny_outside_names()
    steps.begin("its DNS, network and storage")
    _wait()
    print(f"The cluster is up after {steps.elapsed_s():.0f} s. To use it:\n{_usage()}", flush=True)


def choice() -> str:
    """Return the node image to use: `stock`, `own` or an image's name.

    SLUICEGATE_NODE decides. Without it the image is built here if this project started the Docker engine,
    because such a machine often cannot pull images; with the machine's own engine it is kind's stock image.
    """
    if named := os.environ.get(NODE_VARIABLE, ""):
        return named
    return _OWN if docker_engine.ours() else _STOCK


def unbuilt() -> str:
    """Return which programs of the node must be built first, or an empty string. Starts nothing.

    Only an image that is built here has such programs; they take minutes.
    """
    if os.environ.get(NO_CLUSTER):
        return f"{NO_CLUSTER} is set"
    missing = [program.name for program in _missing()]
    return f"not built yet for the node: {', '.join(missing)}" if missing else ""


def build() -> None:
    """Build the programs of the node, which needs no engine; raises BuildError."""
    for program in _missing():
        program.build()


def _missing() -> list[Program]:
    named = os.environ.get(NODE_VARIABLE, "")
    own = named == _OWN or (not named and (docker_engine.ours() or not docker_engine.version()))
    return node_image.missing() if own else []


def _node_image(steps: Steps) -> str:
    """Return the node image; builds the own one. Empty: kind's default, which kind pulls."""
    chosen = choice()
    if chosen == _OWN:
        return node_image.build(steps)
    return "" if chosen == _STOCK else chosen


def _close(*, own: bool) -> None:
    """Enforce the network rule, then create the network."""
    if network.ours_to_set():
        network.close()
    elif own:
        raise HostError(
            "The network rule needs root on Linux, and the node image that is built here is for machines "
            f"that no packet may leave. Nothing was started; {NODE_VARIABLE}=stock needs no rule."
        )
    else:
        print("Not root on Linux: the cluster reaches whatever other containers reach.", flush=True)
    network.make()


def exists() -> bool:
    """Return whether the cluster exists, running or not."""
    return answers(["docker", "container", "inspect", NODE]) is not None


def _create(image: str) -> None:
    config = kubeconfig().with_name("cluster.json")  # JSON is YAML
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(settings(), indent=1), encoding="utf-8")
    create: list[str | Path] = [link_tool("kind"), "create", "cluster", "--config", config]
    create += ["--image", image] if image else []
    create += ["--kubeconfig", kubeconfig(), "--wait", f"{_READY_TIMEOUT_S}s"]
    try:
        run(
            create,
            what="kind could not create the cluster",
            patience_s=2.0 * _READY_TIMEOUT_S,
            environment={"KIND_EXPERIMENTAL_DOCKER_NETWORK": network.NETWORK},
        )
    except HostError as error:
        if image or not may_install():
            raise
        raise HostError(
            f"{error}\nIf the stock node image cannot be pulled, {NODE_VARIABLE}=own builds one."
        ) from error


def _deny_outside_names() -> None:
    """Let the cluster's DNS answer NXDOMAIN to outside names if the network rule blocks its upstream.

    Otherwise each lookup of a mistyped host or of an address's name would wait for seconds.
    """
    if not network.ours_to_set():
        return
    what = "the cluster's DNS could not be set up"
    printed = run(_kubectl(*_SYSTEM, "get", "configmap", "coredns", "-o", "json"), what=what)
    patch = json.dumps({"data": {"Corefile": denying(json.loads(printed)["data"]["Corefile"])}})
    run(_kubectl(*_SYSTEM, "patch", "configmap", "coredns", "--patch", patch), what=what)
    run(_kubectl(*_SYSTEM, "rollout", "restart", "deployment/coredns"), what=what)


def denying(corefile: str) -> str:
    """Return kubeadm's Corefile with NXDOMAIN in place of the upstream server."""
    upstream = "forward . /etc/resolv.conf"
    if corefile.count(upstream) != 1:
        raise HostError(f"The settings of the cluster's DNS are not kubeadm's:\n{corefile}")
    # a server block of its own: in CoreDNS' fixed plugin order `template` precedes `kubernetes`
    return corefile.replace(upstream, f"forward . 127.0.0.1:{_DENYING_PORT}") + _DENYING


def _wake(image: str) -> None:
    """Start the node if it was stopped, and write its kubeconfig."""
    present = answers(["docker", "container", "inspect", "--format", "{{.Config.Image}}", NODE])
    if image and present and present.strip() != image:
        print(
            f"The cluster has the image {present.strip()}; run `make kind-down` to use the new one."
        )
    run(["docker", "start", NODE], what="The node does not start (`make kind-down` removes it)")
    kubeconfig().parent.mkdir(parents=True, exist_ok=True)
    run(
        [link_tool("kind"), "export", "kubeconfig", "--name", NAME, "--kubeconfig", kubeconfig()],
        what="kind does not know the cluster (`make kind-down` removes it)",
    )


def _wait() -> None:
    """Wait until the node and the cluster's own components are ready."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    for what, arguments in (
        ("its node", ["wait", "--for=condition=Ready", "nodes", "--all"]),
        ("its control plane", [*_SYSTEM, "wait", "--for=condition=Ready", "pod", *_CONTROL_PLANE]),
        ("its DNS", [*_SYSTEM, "rollout", "status", "deployment/coredns"]),
        ("its network", [*_SYSTEM, "rollout", "status", "daemonset/kube-proxy"]),
        ("its storage", ["-n", "local-path-storage", "rollout", "status", _PROVISIONER]),
    ):
        _wait_for(what, arguments, deadline)


def _wait_for(what: str, arguments: list[str], deadline: float) -> None:
    """Retry until kubectl succeeds: a server that has just started refuses, or has no RBAC rules yet."""
    while True:
        left_s = max(deadline - time.monotonic(), 1.0)
        try:
            run(
                _kubectl(*arguments, f"--timeout={left_s:.0f}s"),
                what=f"The cluster is not ready: {what} (`make kind-down` removes it)",
                patience_s=left_s + 30.0,
            )
        except HostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


def down() -> None:
    """Remove the cluster, its network and the network rule. The engine keeps running."""
    if not docker_engine.version():
        network.remove()
        kubeconfig().unlink(missing_ok=True)
        print("No Docker engine answers, so no cluster runs here.")
        return
    if exists():
        print("Removing the cluster ...", flush=True)
        run(
            [link_tool("kind"), "delete", "cluster", "--name", NAME, "--kubeconfig", kubeconfig()],
            what="kind could not remove the cluster",
        )
    network.remove()
    kubeconfig().unlink(missing_ok=True)
    print("The cluster is removed.", flush=True)


def status() -> str:
    """Return the state of engine, network and cluster, a line each."""
    version = docker_engine.version()
    whose = "started by this project" if docker_engine.ours() else "the machine's"
    refused = network.refused() if network.ours_to_set() else None
    rule = "open: the rule is not in force" if refused is None else f"closed; {refused} refused"
    lines = [
        f"engine      {f'Docker {version}, {whose}' if version else 'none answers'}",
        f"network     {rule}",
        f"cluster     {_health() if version and exists() else 'none'}",
    ]
    return "\n".join([*lines, _usage()] if kubeconfig().is_file() else lines)


def _health() -> str:
    ready = '{.items[0].status.conditions[?(@.type=="Ready")].status}'
    state = answers(_kubectl("--request-timeout=5s", "get", "nodes", "-o", f"jsonpath={ready}"))
    return "ready" if state == "True" else "its node is not ready"


def _kubectl(*arguments: str) -> list[str | Path]:
    return [link_tool("kubectl"), "--kubeconfig", kubeconfig(), *arguments]


def _usage() -> str:
    return f"  export KUBECONFIG={kubeconfig()} PATH={link_tool('kubectl').parent}:$PATH"
