"""Emulated hosts: options, what hosts share, rates, delays, counters, and the end."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from benchmarks.emulation import netem
from benchmarks.emulation.netem import spread
from benchmarks.emulation.network import EmulatedNetwork
from tests.campaigns.faults import jobs
from tests.support.emulation import network, start_netem
from tests.support.processes import comes_true

pytestmark = pytest.mark.mpi

BURST = 2 * 1514  # bytes that pass a rate limit at once


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        ("--hosts 0", "--hosts"),
        ("-n many", "-n"),
        ("--rate 10Mb", "10Mb"),
        ("--delay -5ms", "--delay"),
        ("--topology ring", "--topology"),
        ("--mpi impi --python python3", "--python"),
        ("--command", "--command"),
    ],
)
def test_an_invalid_option_is_an_error(line, culprit):
    with pytest.raises(netem.UsageError, match=culprit):
        netem.read(line.split())


def test_arguments_after_two_dashes_are_those_of_the_job():
    line = "--hosts 4 -n 8 --rate 2.5mbit --delay=5ms -- --hosts 9 -n 7 -- --rate"
    options = netem.read(line.split())

    assert (options.hosts, options.places) == (4, spread(8, 4))
    assert (options.rate, options.delay) == (2_500_000, 0.005)
    assert options.job == ["--hosts", "9", "-n", "7", "--", "--rate"]
    cyclic = netem.read(["--hosts", "3", "-n", "5", "--cyclic"]).places
    assert cyclic == ["host0", "host1", "host2", "host0", "host1"]
    assert spread(5, 2) == ["host0", "host0", "host0", "host1", "host1"]


@pytest.fixture(scope="module")
def pair():
    """Two hosts without limits."""
    with network(hosts=2) as hosts:
        yield hosts


ABOUT = """
import os, socket
print(socket.gethostname(), socket.gethostbyname("host1"), os.listdir("/dev/shm"))
print(sum(name.isdecimal() for name in os.listdir("/proc")))
open("/dev/shm/mine", "w").close()
"""


def test_hosts_share_neither_name_nor_memory_nor_processes(pair):
    """So that no MPI can bypass the network."""
    for host in range(2):
        command = pair.command(host, [sys.executable, "-c", ABOUT])
        said = subprocess.check_output(command, text=True, timeout=60)

        assert said == f"host{host} 10.77.0.2 []\n2\n"  # and the bridge's process
    assert pair.counters()[0]["tx_packets"] == 0  # no announcements


# Send bytes and wait for one byte back, several times; print the shortest time
TALK = """
import socket, sys, time
role, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if role == "listen":
    with socket.create_server(("", 5000)) as server:
        print("ready", flush=True)
        peer = server.accept()[0]
        for _ in range(rounds):
            left = size
            while left:
                left -= len(peer.recv(left))
            peer.send(b".")
    sys.exit()
peer, seconds = socket.create_connection(("host1", 5000)), []
for _ in range(rounds):
    begin = time.perf_counter()
    peer.sendall(bytes(size))
    assert peer.recv(1)
    seconds.append(time.perf_counter() - begin)
print(min(seconds))
"""


def talk(link: EmulatedNetwork, size: int, rounds: int) -> float:
    """Send from host 0 to host 1 by TCP; return the seconds of the fastest round."""
    words = [str(size), str(rounds)]
    command = link.command(1, [sys.executable, "-c", TALK, "listen", *words])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdout.readline() == "ready\n"
            command = link.command(0, [sys.executable, "-c", TALK, "speak", *words])
            return float(subprocess.check_output(command, timeout=60))
        finally:
            listener.terminate()


def test_counters_count_ethernet_frames(pair):
    """Of at most 1514 bytes, of which 66 are headers and up to 1448 are data."""
    size = 10**6
    before = pair.counters()
    with network(hosts=2) as other:  # with the same names and addresses
        talk(other, size, rounds=1)
        assert other.counters()[1]["rx_bytes"] > size
    for host in netem.growth(before, pair.counters()).values():
        assert host["rx_bytes"] < 1000  # of ARP
    before = pair.counters()
    talk(pair, size, rounds=1)
    for _ in range(100):  # the last packets may still travel
        sent, got = netem.growth(before, pair.counters()).values()
        if sent["tx_bytes"] == got["rx_bytes"]:
            break
        time.sleep(0.1)

    assert sent["tx_bytes"] == got["rx_bytes"]
    assert sent["rx_packets"] == got["tx_packets"]
    assert sent["tx_packets"] >= size / 1448
    assert sent["tx_bytes"] >= size + 66 * size / 1448
    assert sent["tx_bytes"] <= 1514 * sent["tx_packets"]


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_a_rate_is_not_exceeded(delay):
    size, rate = 400_000, 8_000_000
    with network(hosts=2, rate=rate, delay=delay) as link:
        assert talk(link, size, rounds=1) >= (size - BURST) * 8 / rate + 2 * delay


def test_a_delay_is_one_way():
    with network(hosts=3, delay=0.02) as link:
        assert talk(link, size=1, rounds=5) >= 2 * 0.02


# A rank with a child that is not waited for and sleeps for minutes
ORPHAN = """
import socket, subprocess, time
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen(["sleep", "300"], start_new_session=True, **quiet)
open("ready-" + socket.gethostname(), "w").close()
time.sleep(300)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_all_processes_and_interfaces(name, tmp_path):
    """Ranks on other hosts, their orphans and the bridge, even with SIGKILL."""
    more = {jobs.MARK: str(tmp_path)}  # which all its processes inherit
    words = ("--hosts", 2, "-n", 2, "--delay", "1ms", "--command", "--")
    job = start_netem(*words, sys.executable, "-c", ORPHAN, cwd=tmp_path, **more)
    try:
        job.wait_until(lambda: len([*tmp_path.glob("ready-*")]) == 2)
        assert len(jobs.marked(str(tmp_path))) >= 4
        job.signal(getattr(signal, name))
        assert job.end().code != 0
        # after SIGKILL it cannot wait for their end
        assert comes_true(lambda: not jobs.marked(str(tmp_path)), 30)
    finally:
        jobs.sweep(str(tmp_path))
    interfaces = {name for _, name in socket.if_nameindex()}
    assert not interfaces & {"bridge", "port0", "port1", "far0", "far1"}
