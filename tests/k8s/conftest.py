"""The one-node cluster, inside whose namespaces these tests run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.k8s.pod_script import api
from tests.k8s.spark import NAMESPACE, kubectl, prepare_namespace
from tests.support.suspended import resume, suspend

KINDS = "pods,secrets,configmaps,services"
OWN = ("kube-root-ca.crt",)


def pytest_collection_modifyitems(items):
    """Leave them out of every other lane: they need ``make test-k8s``."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("k8s")


def left():
    """What is in the namespace."""
    names = kubectl("-n", NAMESPACE, "get", KINDS, "-o", "name").split()
    return [one for one in names if one.partition("/")[2] not in OWN]


@pytest.fixture(scope="session", autouse=True)
def namespace():
    if "KUBECONFIG" not in os.environ:
        pytest.skip("no cluster: make test-k8s")
    prepare_namespace()


@pytest.fixture(autouse=True)
def nothing_left(namespace):
    yield
    for pod in api().drivers("airflow-occ-identity"):
        api().delete(pod)


class Kubelet:
    """The node's agent."""

    def __init__(self):
        self.pid = int((Path(os.environ["KUBECONFIG"]).parent / "kubelet.pid").read_text())

    def freeze(self):
        suspend(self.pid)

    def thaw(self):
        resume(self.pid)


@pytest.fixture
def kubelet():
    one = Kubelet()
    yield one
    one.thaw()
