"""Three real ZooKeeper servers that elect a leader, on free loopback ports."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from airflow_occ_provider.embedded.ports import free_ports
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper

_SIZE = 3


class EmbeddedZookeeperEnsemble:
    """Three ZooKeeper servers during a ``with`` block; two are a majority.

    :param folder: folder of their data and logs.
    """

    def __init__(self, folder: Path) -> None:
        ports = free_ports(3 * _SIZE)
        votes = {
            f"server.{number}": f"127.0.0.1:{ports.pop()}:{ports.pop()}"
            for number in range(1, _SIZE + 1)
        }
        self.servers = tuple(
            _member(folder / str(number), number, ports.pop(), votes) for number in range(1, _SIZE + 1)
        )

    @property
    def hosts(self) -> str:
        """The connect string of all servers."""
        return ",".join(server.hosts for server in self.servers)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all servers; safe to repeat."""
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.stop)


def _member(folder: Path, number: int, port: int, votes: dict[str, str]) -> EmbeddedZookeeper:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "data" / "myid").write_text(str(number))
    return EmbeddedZookeeper(folder, port, settings={"initLimit": 20, "syncLimit": 10, **votes})
