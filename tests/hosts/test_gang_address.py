"""Where the members of a gang reach a host."""

from dispatch.runs.spec import gang_address
from hosts.models import Host

INTERFACES = [
    {"interface": "eth0", "address": "10.0.0.1"},
    {"interface": "ib0", "address": "172.16.0.1"},
    {"interface": "ib0", "address": "fd00::1"},
]


def test_a_named_address_comes_before_the_pools_interface_and_that_before_the_one_of_ssh() -> None:
    host = Host(address="10.0.0.1", facts={"interfaces": INTERFACES})
    assert (host.peer_address(""), host.peer_address("ib0")) == ("10.0.0.1", "172.16.0.1")
    assert host.peer_address("eth7") == "10.0.0.1"
    host.gang_address = "192.168.0.1"
    assert host.peer_address("ib0") == "192.168.0.1"
    assert Host(facts={}).peer_address("ib0") == "127.0.0.1"


def test_the_interface_of_the_config_comes_first_where_the_host_has_it() -> None:
    host = Host(address="10.0.0.1", gang_address="192.168.0.1", facts={"interfaces": INTERFACES})
    assert gang_address(host, "ib0", "eth0") == "172.16.0.1"
    assert gang_address(host, "eth7", "eth0") == gang_address(host, "", "eth0") == "192.168.0.1"
