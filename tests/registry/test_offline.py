"""A library that makes an environment contacts no host."""

import socket
import threading
import urllib.request

import pytest

from rlcli.environments.adapters import jax_libraries
from rlcli.errors import RlcliError
from rlcli.registry.libraries import contact_no_host


def send():
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"a", ("192.0.2.1", 9))


def connect(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(0.2)
        client.connect(address)


@pytest.mark.parametrize(
    "contact",
    [
        lambda: connect(("192.0.2.1", 80)),
        lambda: connect(("2001:db8::1", 80), socket.AF_INET6),
        lambda: socket.getaddrinfo("example.org", 443),
        lambda: socket.getaddrinfo(b"example.org", 443),
        lambda: urllib.request.urlopen("http://192.0.2.1/levels.npy"),
        send,
    ],
)
def test_no_other_machine_is_reached(contact):
    refused = pytest.raises(RlcliError, match="environment `a` would contact")
    with refused, contact_no_host("environment `a`"):
        contact()


def test_sockets_within_this_machine_work(tmp_path):
    path = str(tmp_path / "socket")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        contact_no_host("environment `a`"),
    ):
        connect(server.getsockname())
        socket.getaddrinfo("localhost", 80)
        socket.getaddrinfo(None, 80)
        local.bind(path)
        local.listen()
        connect(path, socket.AF_UNIX)


def test_other_threads_and_what_comes_afterwards_are_free():
    errors = []

    def contact():
        try:
            connect(("192.0.2.1", 80))
        except OSError:  # no answer, or no network
            pass
        except RlcliError as error:
            errors.append(error)

    with contact_no_host("environment `a`"):
        thread = threading.Thread(target=contact)
        thread.start()
        thread.join()
    contact()
    assert not errors


def test_an_environment_that_downloads_levels_is_one_error():
    def make():
        return urllib.request.urlopen("https://levels.example.org/boxoban.npy")

    with pytest.raises(RlcliError) as error:
        jax_libraries.make_concrete("jumanji/Sokoban-v0", make, "")
    assert "`jumanji/Sokoban-v0` would contact `levels.example.org`" in str(error.value)
