"""The servers of a ZooKeeper connection, as a user may write them."""

from __future__ import annotations

import pytest

from airflow_occ_provider.leases.zookeeper.access import connect_string


@pytest.mark.parametrize(
    "hosts",
    [
        "zk://zk1:2181/hudi",
        "zk1;zk2",
        "zk1:2181 zk2:2181",
        "zk1/zk2:2181/hudi",
        "zk1:",
        "fe80::2",
        "zk1:x",
    ],
)
def test_what_would_move_the_chroot_or_lose_a_server_is_refused(hosts):
    with pytest.raises(ValueError, match=r"is not a server|after the chroot"):
        connect_string(hosts)


@pytest.mark.parametrize(
    ("hosts", "port", "expected"),
    [
        ("[::1]:2181,[fe80::2]", None, "[::1]:2181,[fe80::2]:2181"),
        (" zk1 , zk_2.example.com ", 2182, "zk1:2182,zk_2.example.com:2182"),
        ("10.0.0.1:2181,10.0.0.2/hudi/a/", 2181, "10.0.0.1:2181,10.0.0.2:2181/hudi/a"),
    ],
)
def test_each_server_has_a_port_and_the_chroot_stays_last(hosts, port, expected):
    assert connect_string(hosts, port) == expected
