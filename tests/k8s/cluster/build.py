"""Build what a one-node Kubernetes needs, once: Go modules, Debian packages, two images.

Kubernetes comes from the Go module proxy, etcd, containerd, runc and the network plugins from Debian's
packages, which are unpacked and not installed. The images hold no system: pods see the machine's own
``/usr``. Run as ``python -m tests.k8s.cluster.build``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from airflow_occ_provider.embedded.bundle import cache_folder
from tests.k8s.make_pod import IMAGE

VERSION = "1.34.3"  # the last one whose kubelet accepts cgroup v1 without a setting
PAUSE, SPARK = "docker.io/airflow-occ/pause:1", IMAGE
PACKAGES = ("etcd-server", "containerd", "runc", "containernetworking-plugins", "libseccomp2")
HERE = Path(__file__).parent
ROOT_LINKS = ("bin", "sbin", "lib", "lib64")
FOLDERS = ("usr", "etc", "tmp", "root", "proc", "sys", "dev", "work", "opt/spark/conf", "var/run", "run")
STAMP = "built"


def home() -> Path:
    """The folder of what was built."""
    return cache_folder() / f"kubernetes-{VERSION}"


def built() -> Path:
    """Build what is missing, and return its folder."""
    folder = home()
    if not (folder / STAMP).exists():
        folder.mkdir(parents=True, exist_ok=True)
        hyperkube(folder)
        packages(folder)
        images(folder)
        (folder / STAMP).touch()
    return folder


def run(*command: str, cwd: Path, **environment: str) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, check=True)


def hyperkube(folder: Path) -> None:
    """Compile Kubernetes, in about ten minutes of two cores."""
    if (folder / "hyperkube").exists():
        return
    source = folder / "source"
    source.mkdir(exist_ok=True)
    shutil.copy(HERE / "hyperkube.go", source / "main.go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / name, source / name)
    major, minor, _ = VERSION.split(".")
    told = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    package = "k8s.io/component-base/version"
    flags = " ".join(("-s -w", *(f"-X {package}.{name}={value}" for name, value in told.items())))
    run("go", "build", "-trimpath", f"-ldflags={flags}", "-o", "../hyperkube.new", ".", cwd=source)
    (folder / "hyperkube.new").rename(folder / "hyperkube")


def packages(folder: Path) -> None:
    """Unpack Debian's packages."""
    with tempfile.TemporaryDirectory() as scratch:
        run("apt-get", "update", "-qq", cwd=Path(scratch))
        run("apt-get", "download", "-qq", *PACKAGES, cwd=Path(scratch))
        for package in Path(scratch).glob("*.deb"):
            run("dpkg-deb", "-x", str(package), str(folder / "debian"), cwd=Path(scratch))


def images(folder: Path) -> None:
    """Write the image that holds a pod, and the one that runs Spark from the machine's own files."""
    with tempfile.TemporaryDirectory() as scratch:
        pause, spark = Path(scratch, "pause"), Path(scratch, "spark")
        pause.mkdir()
        target, source = str(pause / "pause"), str(HERE / "pause.go")
        run("go", "build", "-ldflags=-s -w", "-o", target, source, cwd=pause, CGO_ENABLED="0")
        for name in FOLDERS:
            (spark / name).mkdir(parents=True)
        (spark / "tmp").chmod(0o1777)
        shutil.copy(HERE / "entrypoint.sh", spark / "opt")
        (spark / "opt" / "entrypoint.sh").chmod(0o755)
        for name in ROOT_LINKS:
            (spark / name).symlink_to(f"usr/{name}")
        (spark / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (spark / "etc" / "group").write_text("root:x:0:\n")
        (spark / "etc" / "nsswitch.conf").write_text("hosts: files dns\n")
        shutil.copy("/etc/ld.so.cache", spark / "etc")
        (folder / "images").mkdir(exist_ok=True)
        archive(PAUSE, folder / "images" / "pause.tar", pause, "/pause")
        archive(SPARK, folder / "images" / "spark.tar", spark, "/opt/entrypoint.sh")


def archive(name: str, path: Path, folder: Path, *entrypoint: str) -> None:
    """Write a folder as an image of one layer, in Docker's format."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(folder, ".", filter=_of_root)
    packed = layer.getvalue()
    variables = ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin"]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": variables, "WorkingDir": "/work"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(packed).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for inner, content in (
            ("layer.tar", packed),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(inner)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


if __name__ == "__main__":
    print(built())
    sys.exit()
