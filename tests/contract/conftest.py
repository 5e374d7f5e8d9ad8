"""Every storage and every lease store that the suites run against.

S3 is a server on loopback that counts its requests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from azure.storage.blob import BlobServiceClient
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from airflow_occ_provider.places import of_task
from airflow_occ_provider.storage.address import fsspec_url, open_file_system, parse_table_path
from airflow_occ_provider.storage.table import HudiTable
from tests.contract import spool_place, spooler
from tests.services.azurite import EmbeddedAzurite
from tests.services.clouds import NEEDS_GO, NEEDS_NODE
from tests.services.dynamodb import EmbeddedDynamo
from tests.services.fake_gcs import EmbeddedFakeGcs
from tests.services.hdfs import Hdfs
from tests.support.installed import install
from tests.support.lease_stores import STORES, UNREACHABLE, Site
from tests.support.table_properties import table_properties

BUCKET = "lake"
POLL_S = 0.2


@dataclass
class Storage:
    """A place for tables: puts one there, and opens it."""

    root: str
    file_system: Any
    requests: list[str] = field(default_factory=list)
    mark_folder: Callable[[str], None] = lambda _: None

    def put(self, folder: Path, name: str) -> None:
        if isinstance(self.file_system, fsspec.get_filesystem_class("file")):
            shutil.copytree(folder, Path(self.root, name))
            return
        # In order: the files of a later instant are the younger ones.
        for path in filter(Path.is_file, sorted(folder.rglob("*"))):
            self.file_system.pipe_file(
                self.key(f"{name}/{path.relative_to(folder).as_posix()}"), path.read_bytes()
            )

    def key(self, name: str) -> str:
        """Return the name of a file in the file system."""
        return str(
            self.file_system._strip_protocol(fsspec_url(*parse_table_path(f"{self.root}/{name}")))
        )

    def open(self, name: str, **options: Any) -> HudiTable:
        return HudiTable(f"{self.root}/{name}", self.file_system, **options)

    def counted(self) -> list[str]:
        seen = list(self.requests)
        self.requests.clear()
        return seen


@pytest.fixture(scope="session")
def s3_server():
    requests: list[str] = []
    moto = DomainDispatcherApplication(create_backend_app)

    def counting(environ, start_response):
        requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}")
        return moto(environ, start_response)

    import threading

    server = make_server("127.0.0.1", 0, counting, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def s3(s3_server):
    url, requests = s3_server
    file_system = fsspec.filesystem(
        "s3", key="k", secret="s", endpoint_url=url, use_listings_cache=False, skip_instance_cache=True
    )
    if not file_system.exists(BUCKET):
        file_system.mkdir(BUCKET)
    storage = Storage(f"s3a://{BUCKET}", file_system, requests)
    storage.mark_folder = lambda key: file_system.pipe_file(f"{key}/", b"")
    storage.counted()
    return storage


@pytest.fixture
def local(tmp_path):
    (tmp_path / BUCKET).mkdir()
    return Storage(str(tmp_path / BUCKET), fsspec.filesystem("file"))


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    with EmbeddedAzurite(tmp_path_factory.mktemp("azurite")) as store:
        yield store


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory):
    with EmbeddedFakeGcs(tmp_path_factory.mktemp("fake_gcs")) as store:
        yield store


@pytest.fixture
def azure(azurite, monkeypatch):
    """A new container; Hadoop marks a folder by an empty blob of its name."""

    root, file_system = _new_bucket(azurite, monkeypatch)
    client = BlobServiceClient.from_connection_string(azurite.connection_string)

    def mark_folder(key):
        blob = client.get_blob_client(*key.split("/", 1))
        blob.upload_blob(b"", metadata={"hdi_isfolder": "true"})

    with client:
        yield Storage(root, file_system, mark_folder=mark_folder)


@pytest.fixture
def gcs(fake_gcs, monkeypatch):
    """A new bucket; Hadoop marks a folder by an empty object whose name ends with a slash."""
    root, file_system = _new_bucket(fake_gcs, monkeypatch)
    return Storage(root, file_system, mark_folder=lambda key: file_system.pipe_file(f"{key}/", b""))


@pytest.fixture(scope="session")
def embedded_hdfs(tmp_path_factory):
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as store:
        yield store


@pytest.fixture
def hdfs(embedded_hdfs, monkeypatch):
    return Storage(*_new_bucket(embedded_hdfs, monkeypatch))


def _new_bucket(store, monkeypatch):
    """Return the root of a bucket, and the file system that the provider itself opens for it."""
    for variable, value in store.environment.items():
        monkeypatch.setenv(variable, value)
    bucket = f"lake-{uuid.uuid4().hex}"
    store.make_bucket(bucket)
    root = store.table(bucket, "tables")
    scheme, path = parse_table_path(root)
    return root, open_file_system(scheme, path)


SLOW = [
    pytest.param("azure", marks=[pytest.mark.nightly, NEEDS_NODE]),
    pytest.param("gcs", marks=[pytest.mark.nightly, NEEDS_GO]),
    pytest.param("hdfs", marks=pytest.mark.nightly),
]


@pytest.fixture(params=["local", "s3", *SLOW])
def storage(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def embedded_dynamodb(tmp_path_factory):
    with EmbeddedDynamo(tmp_path_factory.mktemp("dynamodb")) as running:
        yield running


@pytest.fixture(
    params=[
        pytest.param(kind, marks=pytest.mark.rest if kind == "dynamodb" else [])
        for kind in STORES
        if kind != "s3"  # which needs Go
    ]
)
def backend(request):
    """The name of a store; ``locks`` are those of a metastore, in memory."""
    return request.param


@pytest.fixture
def open_store(backend, request, tmp_path):
    def server(name):
        return request.getfixturevalue(f"embedded_{name}")

    return STORES[backend](Site(tmp_path, server, POLL_S))


@pytest.fixture
def open_unreachable_store(backend):
    if backend in UNREACHABLE:
        return UNREACHABLE[backend]
    pytest.skip("there is no service to ask")


@pytest.fixture
def line(queue):
    return queue


@pytest.fixture
def folder(tmp_path):
    """The metadata folder of a table made by hand."""
    metadata = tmp_path / "t" / ".hoodie"
    (metadata / "timeline" / "history").mkdir(parents=True)
    (metadata / ".heartbeat").mkdir()
    (metadata / "hoodie.properties").write_text(table_properties())
    for partition in ("p=1", "p=2", "p=3"):
        (tmp_path / "t" / partition).mkdir()
    return metadata


@pytest.fixture
def install_place(tmp_path, monkeypatch):
    """Installs a file as a package that has one place, and adds a connection of the place's name."""
    site, modules = tmp_path / "site", []

    def installed(name, file, master):
        module = Path(file).stem
        modules.append(module)
        install(site, module, of_task.GROUP, f"{name} = {module}")
        shutil.copy(file, site)
        monkeypatch.syspath_prepend(str(site))
        connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))

    yield installed
    of_task._loaded.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def spool(tmp_path, install_place):
    """A spooler, its connection, and its place as a package that is installed."""
    folder = tmp_path / "spool"
    folder.mkdir()
    install_place("spool", spool_place.__file__, f"spool://{folder}")
    server = subprocess.Popen([sys.executable, spooler.__file__, str(folder)], stdin=subprocess.PIPE)
    yield folder
    server.communicate()
