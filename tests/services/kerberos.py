"""A Kerberos realm on loopback, from Debian's packages, and Python's library for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.service import EmbeddedService
from tests.services.debian import unpacked

PACKAGES = ("krb5-kdc", "krb5-user", "krb5-admin-server", "libkrb5-dev", "libgssapi-krb5-2")
REALM = "TEST"
_STEP_TIMEOUT_S, _BUILD_TIMEOUT_S = 60, 1800
_CLIENT = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
 127.0.0.1 = {realm}
"""
_SERVER = """[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
[dbmodules]
 db_module_dir = {libraries}/krb5/plugins/kdb
"""


def why_not() -> str:
    """Return why no realm can run here; empty if one can."""
    if not all(map(shutil.which, ("apt-get", "dpkg-deb", "gcc"))):
        return "a realm needs Debian's apt-get and dpkg-deb, and Python's library for it needs gcc"
    return ""


class Realm(EmbeddedService):
    """A server of tickets during a ``with`` block."""

    _NAME = "The server of tickets"
    _LOG = "krb5kdc.log"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root = unpacked("kerberos", *PACKAGES)
        (self.libraries,) = (self.root / "usr" / "lib").glob("*-linux-gnu")
        self.keytab = folder / "keytab"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its clients and servers."""
        return {
            **os.environ,
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder}/tickets",
            "LD_LIBRARY_PATH": str(self.libraries),
        }

    def add(self, *principals: str) -> None:
        """Add principals, whose keys go to ``keytab``."""
        for principal in principals:
            self._run("usr/sbin/kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("usr/sbin/kadmin.local", "-q", f"ktadd -k {self.keytab} {principal}")

    def take_ticket(self, principal: str) -> None:
        """Have the client of this realm hold a ticket."""
        self._run("usr/bin/kinit", "-k", "-t", str(self.keytab), principal)

    def _command(self) -> list[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        fields = {
            "realm": REALM,
            "port": self.port,
            "folder": self.folder,
            "libraries": self.libraries,
        }
        (self.folder / "krb5.conf").write_text(_CLIENT.format(**fields))
        (self.folder / "kdc.conf").write_text(_SERVER.format(**fields))
        if not (self.folder / "principals").exists():
            self._run("usr/sbin/kdb5_util", "create", "-s", "-P", "of the tests")
        return [str(self.root / "usr/sbin/krb5kdc"), "-n"]

    def _variables(self) -> dict[str, str]:
        return self.variables

    def _run(self, tool: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.root / tool), *arguments],
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=_STEP_TIMEOUT_S,
        )
        if done.returncode:
            raise EmbeddedError(f"{tool}: {(done.stderr or done.stdout)[-1000:]}")


def python_library(realm: Realm) -> Path:
    """Return a folder for ``PYTHONPATH`` with what the extra ``kerberos`` needs, built once."""
    folder = cache_folder() / f"kerberos-python-{sys.version_info[0]}.{sys.version_info[1]}"
    if folder.exists():
        return folder
    headers, libraries = realm.root / "usr" / "include", realm.libraries
    variables = {
        **os.environ,
        "GSSAPI_COMPILER_ARGS": f"-I{headers}/mit-krb5 -I{headers} -DHAS_GSSAPI_EXT_H",
        "GSSAPI_LINKER_ARGS": f"-L{libraries} -L{libraries}/mit-krb5 -lgssapi_krb5",
        "GSSAPI_MAIN_LIB": str(libraries / "libgssapi_krb5.so.2"),
        "GSSAPI_SUPPORT_DETECT": "false",
        "PATH": f"{realm.root}/usr/bin:{os.environ['PATH']}",
    }
    building = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(building, ignore_errors=True)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(building)]
    subprocess.run(
        [*install, "requests-gssapi"],
        env=variables,
        check=True,
        timeout=_BUILD_TIMEOUT_S,
    )
    building.rename(folder)
    return folder
