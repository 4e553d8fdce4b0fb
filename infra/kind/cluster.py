"""The cluster: made by kind, waited for, looked at, removed.

The same for every machine but for the node's image: kind's stock one, or our own (`node`). All of
it has names of its own and a kubeconfig in the work folder: no other cluster and no `~/.kube` is
touched. Called by `__main__` and `loading`.
"""

import json
import os
import time
from pathlib import Path
from typing import Final

from infra.host import HostError, answers, may_install, run
from infra.kind import engine, network, node
from infra.kind.progress import Steps
from infra.tools import OFF_VARIABLE, TOOLS, tool
from infra.work import work_folder

NAME: Final = "sluicegate"
NODE: Final = f"{NAME}-control-plane"

NODE_VARIABLE: Final = "SLUICEGATE_NODE"
"""`stock`: kind's own node image; `own`: ours; or the name of any other. Unset: as `choice` says."""

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
    """Return the file by which kubectl, helm and tests reach the cluster."""
    return work_folder() / "kind" / "kubeconfig"


def settings() -> dict[str, object]:
    """Return kind's settings of the cluster (kind.x-k8s.io/v1alpha4).

    One node. Its API server listens on this machine's loopback only, which is kind's default. etcd
    does not wait for the disk: what a power cut would take is made again in a minute. Pod security
    and its labels are built into the API server.
    """
    etcd = {"local": {"extraArgs": [{"name": "unsafe-no-fsync", "value": "true"}]}}
    patches = [
        {"kind": "ClusterConfiguration", "etcd": etcd},
        # kubelet refuses cgroup v1 unless told; without effect on v2
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
    """Make the cluster unless it is there, and wait until all of it is ready.

    Raises:
        HostError: it cannot be made; says what is missing.
        BuildError: a tool or a program of the node cannot be built.
    """
    steps = Steps(_STEPS)
    steps.begin("kubectl, helm and kind")
    for name in TOOLS:
        tool(name)
    steps.begin("a Docker engine")
    print(f"Docker {engine.up()}", flush=True)
    image = _node_image(steps)
    steps.begin("the network, closed to the outside")
    _close(own=image == node.name())
    steps.begin("the cluster")
    if exists():
        _wake(image)
    else:
        _create(image)
        _answer_at_once()
    steps.begin("its DNS, network and storage")
    _wait()
    print(f"The cluster is up after {steps.elapsed_s():.0f} s. To use it:\n{_usage()}", flush=True)


def choice() -> str:
    """Return which node image is taken: `stock`, `own` or an image's name.

    What SLUICEGATE_NODE says. Else ours where we run the engine ourselves, which is where nothing
    was set up and often nothing can be pulled; kind's stock image with an engine of the machine.
    """
    said = os.environ.get(NODE_VARIABLE, "")
    if said:
        return said
    return _OWN if engine.ours() else _STOCK


def gap() -> str:
    """Return what would have to be built before there is a cluster, or an empty string; starts nothing.

    Only what takes long: the programs of a node image of our own, where ours would be taken.
    """
    if os.environ.get(OFF_VARIABLE):
        return f"{OFF_VARIABLE} is set"
    said = os.environ.get(NODE_VARIABLE, "")
    own = said == _OWN or (not said and (engine.ours() or not engine.version()))
    missing = [program.name for program in node.missing()] if own else []
    return f"not built yet for the node: {', '.join(missing)}" if missing else ""


def _node_image(steps: Steps) -> str:
    """Return the node image, built where it is ours; empty: kind's default, which it pulls."""
    chosen = choice()
    if chosen == _OWN:
        return node.build(steps)
    return "" if chosen == _STOCK else chosen


def _close(*, own: bool) -> None:
    """Put the network rule in force, before there is a network, and make that."""
    if network.ours_to_set():
        network.close()
    elif own:
        raise HostError(
            "The network rule needs root on Linux, and a node image of our own is for machines that "
            f"no packet may leave. Nothing was started; {NODE_VARIABLE}=stock does without the rule."
        )
    else:
        print("Not root on Linux: the cluster reaches what any container here reaches.", flush=True)
    network.make()


def exists() -> bool:
    """Return whether there is a cluster of our name, running or not."""
    return answers(["docker", "container", "inspect", NODE]) is not None


def _create(image: str) -> None:
    config = kubeconfig().with_name("cluster.json")  # JSON is YAML
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(settings(), indent=1), encoding="utf-8")
    chosen = ["--image", image] if image else []
    try:
        run(
            [
                *(str(tool("kind")), "create", "cluster", "--config", str(config), *chosen),
                *("--kubeconfig", str(kubeconfig()), "--wait", f"{_READY_TIMEOUT_S}s"),
            ],
            what="kind could not make the cluster",
            patience_s=2.0 * _READY_TIMEOUT_S,
            environment={"KIND_EXPERIMENTAL_DOCKER_NETWORK": network.NETWORK},
        )
    except HostError as error:
        if image or not may_install():
            raise
        raise HostError(
            f"{error}\nWhere the stock node image cannot be pulled, {NODE_VARIABLE}=own builds one."
        ) from error


def _answer_at_once() -> None:
    """Let the cluster's DNS deny outside names itself, where the network rule keeps it from asking.

    It would try each for seconds and say nothing: whoever looks up the name of an address, or of a
    host that a typing error made, would wait for that.
    """
    if not network.ours_to_set():
        return
    kubectl = [str(tool("kubectl")), "--kubeconfig", str(kubeconfig()), "-n", "kube-system"]
    what = "the cluster's DNS could not be set up"
    said = run([*kubectl, "get", "configmap", "coredns", "-o", "json"], what=what)
    patch = json.dumps({"data": {"Corefile": denying(json.loads(said)["data"]["Corefile"])}})
    run([*kubectl, "patch", "configmap", "coredns", "--patch", patch], what=what)
    run([*kubectl, "rollout", "restart", "deployment/coredns"], what=what)


def denying(corefile: str) -> str:
    """Return kubeadm's settings of CoreDNS with a plain no for every name that it would ask about.

    Raises:
        HostError: they ask nobody, or in another way than kubeadm's.
    """
    asks = "forward . /etc/resolv.conf"
    if corefile.count(asks) != 1:
        raise HostError(f"The settings of the cluster's DNS are not kubeadm's:\n{corefile}")
    # a server of its own: plugins have a fixed order, in which `template` comes before `kubernetes`
    return corefile.replace(asks, f"forward . 127.0.0.1:{_DENYING_PORT}") + _DENYING


def _wake(image: str) -> None:
    """Start the node if it was stopped, with its engine for example, and write its kubeconfig."""
    made_of = answers(["docker", "container", "inspect", "--format", "{{.Config.Image}}", NODE])
    if image and made_of and made_of.strip() != image:
        print(f"It is there, of {made_of.strip()}; for the new one run `make kind-down` first.")
    run(["docker", "start", NODE], what="the node does not start; `make kind-down` removes it")
    kubeconfig().parent.mkdir(parents=True, exist_ok=True)
    run(
        [tool("kind"), "export", "kubeconfig", "--name", NAME, "--kubeconfig", kubeconfig()],
        what="kind does not know the cluster; `make kind-down` removes it",
    )


def _wait() -> None:
    """Wait until the node and everything of the cluster itself is ready."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    for what, asked in (
        ("its node", ["wait", "--for=condition=Ready", "nodes", "--all"]),
        ("its control plane", [*_SYSTEM, "wait", "--for=condition=Ready", "pod", *_CONTROL_PLANE]),
        ("its DNS", [*_SYSTEM, "rollout", "status", "deployment/coredns"]),
        ("its network", [*_SYSTEM, "rollout", "status", "daemonset/kube-proxy"]),
        ("its storage", ["-n", "local-path-storage", "rollout", "status", _PROVISIONER]),
    ):
        _wait_for(what, asked, deadline)


def _wait_for(what: str, asked: list[str], deadline: float) -> None:
    """Ask until the answer is yes: a server that has just started refuses, or knows no rights yet."""
    kubectl = [str(tool("kubectl")), "--kubeconfig", str(kubeconfig()), *asked]
    while True:
        left_s = max(deadline - time.monotonic(), 1.0)
        try:
            run(
                [*kubectl, f"--timeout={left_s:.0f}s"],
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
    """Remove the cluster with all that was in it, its network and the rule. The engine stays up.

    Raises:
        HostError: something of it cannot be removed.
    """
    if not engine.version():
        print("No Docker engine answers, so no cluster runs here.")
        return
    if exists():
        print("Removing the cluster ...", flush=True)
        run(
            [tool("kind"), "delete", "cluster", "--name", NAME, "--kubeconfig", kubeconfig()],
            what="kind could not remove the cluster",
        )
    network.remove()
    kubeconfig().unlink(missing_ok=True)
    print("There is no cluster.", flush=True)


def status() -> str:
    """Return what there is, a line each."""
    version = engine.version()
    whose = "started by us" if engine.ours() else "the machine's"
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
    kubectl = [str(tool("kubectl")), "--kubeconfig", str(kubeconfig()), "--request-timeout=5s"]
    said = answers([*kubectl, "get", "nodes", "-o", f"jsonpath={ready}"])
    return "ready" if said == "True" else "there, but its node is not ready"


def _usage() -> str:
    return f"  export KUBECONFIG={kubeconfig()} PATH={tool('kubectl').parent}:$PATH"
