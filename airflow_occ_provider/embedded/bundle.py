"""Hudi's Spark bundle and other jars, resolved once with the Ivy in Spark's jars."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.process import EmbeddedError

HUDI_VERSION = "1.2.0"
"""The release unless ``HUDI_RELEASE`` names another one."""
SPARK_VERSION = "3.5"
_SCALA_VERSION = "2.12"
_TIMEOUT_S = 900


def cache_folder() -> Path:
    """Return the download folder: ``AIRFLOW_OCC_CACHE``, or the user's cache."""
    folder = os.environ.get("AIRFLOW_OCC_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(folder) if folder else Path(base) / "airflow_occ_provider"


def hudi_release() -> str:
    """Return Hudi's release: ``HUDI_RELEASE`` of the environment, or the default."""
    return os.environ.get("HUDI_RELEASE") or HUDI_VERSION


def find_bundle(hudi_version: str | None = None) -> Path:
    """Return Hudi's Spark bundle, from ``HUDI_BUNDLE_JAR``, the cache, or Maven.

    :param hudi_version: the release; ``HUDI_BUNDLE_JAR`` is used only if it has this release. By
        default that jar, of any release, or else ``hudi_release``.
    :raises EmbeddedError: if it is missing and cannot be resolved.
    """
    jar = os.environ.get("HUDI_BUNDLE_JAR")
    if jar:
        if not Path(jar).is_file():
            raise EmbeddedError(f"HUDI_BUNDLE_JAR: the file {jar} does not exist")
        if hudi_version in (None, _release_of(Path(jar))):
            return Path(jar)
    name = f"hudi-spark{SPARK_VERSION}-bundle_{_SCALA_VERSION}"
    return resolve_jar("org.apache.hudi", name, hudi_version or hudi_release())


def _release_of(jar: Path) -> str | None:
    try:
        with zipfile.ZipFile(jar) as packed:
            manifest = packed.read("META-INF/MANIFEST.MF").decode()
    except (zipfile.BadZipFile, KeyError):
        return None
    release = re.search(r"^Implementation-Version: *(\S+)", manifest, re.MULTILINE)
    return release[1] if release else None


def resolve_jar(group: str, name: str, version: str, classifier: str = "") -> Path:
    """Return a jar, without its dependencies, from the cache or Maven.

    :param group: the organisation that publishes it.
    :param name: the artifact.
    :param version: the release.
    :param classifier: of the jar, if the release has several.
    :raises EmbeddedError: if it cannot be resolved.
    """
    jar = cache_folder() / f"{'-'.join(filter(None, (name, version, classifier)))}.jar"
    if not jar.is_file():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent, prefix="resolve-") as scratch:
            retrieved = Path(scratch) / jar.name
            wanted = _dependency((group, name, version), "default->master", classifier)
            _retrieve(jar.stem, wanted, retrieved.parent, Path(scratch), expected=retrieved)
            retrieved.replace(jar)
    return jar


def resolve_jars(
    name: str, modules: Sequence[tuple[str, str, str]], *, alone: Sequence[tuple[str, str, str]] = ()
) -> Path:
    """Return a folder with jars and all that they need, from the cache or Maven.

    Two processes may resolve at once: the folder appears when it is complete.

    :param name: of the folder in the cache; other modules need another name.
    :param modules: group, artifact and release of each jar.
    :param alone: further jars, without what they need.
    :raises EmbeddedError: if one cannot be resolved.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolve-") as scratch:
        jars = Path(scratch) / "jars"
        wanted = "".join(_dependency(module, "default->master,runtime") for module in modules)
        wanted += "".join(_dependency(module, "default->master") for module in alone)
        _retrieve(name, wanted, jars, Path(scratch))
        with contextlib.suppress(OSError):  # another process was faster: its folder is not empty
            jars.rename(folder)
    return folder


def _dependency(module: tuple[str, str, str], conf: str, classifier: str = "") -> str:
    group, name, version = map(quoteattr, module)
    artifact = f'<artifact name={name} type="jar" m:classifier={quoteattr(classifier)}/>'
    return (
        f"<dependency org={group} name={name} rev={version} conf={quoteattr(conf)}>"
        f"{artifact if classifier else ''}</dependency>"
    )


def pyspark_home() -> Path:
    """Return the home of a Spark 3.5: ``SPARK_HOME``, or the installed PySpark.

    ``SPARK_HOME`` is for an Airflow with Spark provider 6 or later: that requires ``pyspark-client``,
    which has PySpark's name and files but does not contain Spark.

    :raises EmbeddedError: if it is missing, or does not have the version of Hudi's bundle.
    """
    spark_home = os.environ.get("SPARK_HOME")
    home, origin = (Path(spark_home), "SPARK_HOME") if spark_home else (_installed_pyspark(), "PySpark")
    core_jars = sorted(jar.name for jar in (home / "jars").glob("spark-core_*.jar")) if home else []
    core = f"spark-core_{_SCALA_VERSION}-{SPARK_VERSION}."
    if home and any(name.startswith(core) for name in core_jars):
        return home
    has = f"({home}) has {', '.join(core_jars) or 'no jars'}" if home else "is not installed"
    raise EmbeddedError(
        f"no Spark {SPARK_VERSION} for Scala {_SCALA_VERSION}: {origin} {has}. Set SPARK_HOME to one, "
        "or unset it and install the extra: pip install 'airflow-occ-provider[embedded]'"
    )


def _installed_pyspark() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec and spec.origin else None


def _retrieve(
    what: str, dependencies: str, folder: Path, scratch: Path, *, expected: Path | None = None
) -> None:
    ivy = scratch / "ivy.xml"
    ivy.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="local" module="wanted"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{dependencies}</dependencies></ivy-module>"
    )
    wanted = ("-ivy", str(ivy), "-confs", "default", "-types", "jar", "bundle")
    pattern = folder / "[artifact]-[revision](-[classifier]).[ext]"
    _run_ivy(what, (*wanted, "-retrieve", str(pattern)), scratch, expected=expected)


def _run_ivy(
    what: str, arguments: Sequence[str], scratch: Path, *, expected: Path | None = None
) -> None:
    ivy = next((pyspark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise EmbeddedError(f"Spark at {pyspark_home()} has no Ivy jar to resolve {what}")
    command = [
        str(find_java_home() / "bin" / "java"),
        *trust_store(scratch),
        *("-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(scratch / "ivy"), *arguments),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EmbeddedError(f"{what} was not resolved in {_TIMEOUT_S} s") from error
    if done.returncode or (expected and not expected.is_file()):
        shutil.rmtree(scratch / "ivy", ignore_errors=True)
        problems = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise EmbeddedError(
            f"{what} cannot be resolved from Maven. Give access to a repository, or put the "
            f"jars into {cache_folder()}.\n" + "\n".join(problems[-6:])
        )


def trust_store(scratch: Path) -> list[str]:
    """Return the JVM options that make Java trust the authorities that Python trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ders = ssl.create_default_context().get_ca_certs(binary_form=True)
        trusted = [pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), None) for der in ders]
    if not trusted:
        return []
    store = scratch / "trusted.p12"
    password = "changeit"  # noqa: S105 - the store holds public certificates only
    store.write_bytes(
        pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode()))
    )
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]
