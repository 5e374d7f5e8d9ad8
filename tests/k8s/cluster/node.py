"""A one-node Kubernetes, run as the first process of namespaces of its own.

Run as ``node.py BUILT FOLDER`` inside ``unshare`` with new mount, network and PID namespaces. All its
processes end with it. It is ready when ``FOLDER/ready`` exists.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.k8s.cluster import dns
from tests.k8s.cluster.build import PAUSE

ADDRESS = "10.88.0.1"
API = f"https://{ADDRESS}:6443"
TOKEN = "token-of-the-tests"
NODE = "node"
PATIENCE_S = 120


def main(built: Path, folder: Path) -> None:
    """Start all parts, and wait for the end of the process."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a first process ignores it else
    debian = built / "debian"
    libraries = [str(debian / one / "x86_64-linux-gnu") for one in ("usr/lib", "lib")]
    search = [str(debian / one) for one in ("usr/bin", "usr/sbin", "sbin")]
    os.environ["PATH"] = os.pathsep.join([*search, os.environ["PATH"]])
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
    network()
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig(folder)))
    hyperkube = str(built / "hyperkube")
    etcd(folder)
    apiserver(folder, hyperkube)
    controllers(folder, hyperkube)
    containerd(folder, built)
    kubelet(folder, hyperkube)
    dns.serve(ADDRESS, API, TOKEN)
    until(is_ready, "the node")
    (folder / "ready").touch()
    while True:  # as the first process it inherits all orphans
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def command(*words: str) -> None:
    subprocess.run(words, check=True)


def start(folder: Path, name: str, *words: str) -> None:
    """Start a part of the cluster, with a log of its own."""
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    (folder / f"{name}.pid").write_text(str(process.pid))


def until(ready, what):
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"{what} was not ready in {PATIENCE_S} s")
        time.sleep(0.2)


def network() -> None:
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "cni0", "type", "bridge")
    command("ip", "addr", "add", f"{ADDRESS}/24", "dev", "cni0")
    command("ip", "link", "set", "cni0", "up")
    command("ip", "route", "add", "default", "dev", "cni0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    command("mount", "--make-rprivate", "/")
    command("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/containerd").mkdir()


def kubeconfig(folder: Path) -> dict:
    cluster = {"server": API, "certificate-authority": str(folder / "certs" / "apiserver.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    }


def etcd(folder: Path) -> None:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    flags = {
        "data-dir": "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    given = [word for name, value in flags.items() for word in (f"--{name}", value)]
    start(folder, "etcd", "etcd", *given, "--unsafe-no-fsync")


def apiserver(folder: Path, hyperkube: str) -> None:
    command("openssl", "genrsa", "-out", str(folder / "sa.key"), "2048")
    flags = {
        "etcd-servers": "http://127.0.0.1:2379",
        "cert-dir": str(folder / "certs"),
        "secure-port": "6443",
        "advertise-address": ADDRESS,
        "bind-address": ADDRESS,
        "token-auth-file": "tokens.csv",
        "authorization-mode": "RBAC",
        "service-cluster-ip-range": "10.96.0.0/24",
        "allow-privileged": "true",
        "kubelet-preferred-address-types": "InternalIP",  # else it looks for a host "node"
        "service-account-key-file": "sa.key",
        "service-account-signing-key-file": "sa.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "feature-gates": "WatchList=false",  # Debian's etcd is older than it needs
    }
    start(folder, "apiserver", hyperkube, "apiserver", *(f"--{k}={v}" for k, v in flags.items()))
    until(lambda: get("/readyz") == b"ok", "the API server")


def controllers(folder: Path, hyperkube: str) -> None:
    own = ("--kubeconfig=kubeconfig", "--leader-elect=false")
    start(
        *(folder, "manager", hyperkube, "manager", *own),
        "--service-account-private-key-file=sa.key",
        f"--root-ca-file={folder}/certs/apiserver.crt",  # else pods trust nothing
        "--controllers=*",
    )
    start(folder, "scheduler", hyperkube, "scheduler", *own)


def containerd(folder: Path, built: Path) -> None:
    plugins = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(folder / "ipam"),
            "ranges": [[{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.10"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    (folder / "cni").mkdir()
    listed = {"cniVersion": "0.4.0", "name": "tests", "plugins": [plugins]}
    (folder / "cni" / "10-tests.conflist").write_text(json.dumps(listed))
    runc = next(
        one for one in (built / "debian").rglob("runc") if one.is_file() and os.access(one, os.X_OK)
    )
    (folder / "containerd.toml").write_text(f"""
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{built}/debian/usr/lib/cni"
    conf_dir = "{folder}/cni"
""")
    start(folder, "containerd", "containerd", "-c", "containerd.toml")
    ctr = ("ctr", "-a", "/run/containerd/containerd.sock", "-n", "k8s.io")
    until(Path("/run/containerd/containerd.sock").exists, "containerd")
    until(lambda: subprocess.call([*ctr, "version"]) == 0, "containerd")
    for image in sorted((built / "images").glob("*.tar")):
        command(*ctr, "images", "import", str(image))


def kubelet(folder: Path, hyperkube: str) -> None:
    own = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "failSwapOn": False,
        "evictionHard": dict.fromkeys(("nodefs.available", "imagefs.available"), "1%"),
        "address": ADDRESS,
        "syncFrequency": "10s",
    }
    (folder / "kubelet.json").write_text(json.dumps(own))
    start(
        *(folder, "kubelet", hyperkube, "kubelet", "--config=kubelet.json", "--kubeconfig=kubeconfig"),
        *(f"--root-dir={folder}/kubelet", f"--cert-dir={folder}/kubelet/pki"),
        *(f"--hostname-override={NODE}", f"--node-ip={ADDRESS}"),
    )


def get(path: str) -> bytes:
    told = {"Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"{API}{path}", headers=told)  # noqa: S310
    trusting = ssl._create_unverified_context()  # noqa: S323 - its certificate is its own
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=5) as answer:  # noqa: S310
            return answer.read()
    except OSError:
        return b""


def is_ready() -> bool:
    conditions = (
        json.loads(get(f"/api/v1/nodes/{NODE}") or b"{}").get("status", {}).get("conditions", ())
    )
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
