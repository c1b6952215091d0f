"""Hosts on one machine, joined by links with a rate and a delay.

Each host is a network namespace with a host name, memory and an interface of its own:

    with Network(hosts=4, rate=10_000_000, delay=0.005) as network:
        subprocess.run(network.command(0, ["ping", "-c", "3", "host3"]))
        network.counters()[3]["rx_bytes"]

It needs no root where users may make namespaces. Whatever ends the `with`, even
kill -9, ends every process that runs on a host, and leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType

FOLDER = Path(__file__).resolve().parent
AGENT = FOLDER / "onhost"  # stands in for ssh, between hosts
TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "mount"}
MOST = 1000  # hosts, since a bridge has 1023 ports at most
PATIENCE = 60  # seconds, and one for each host, in which a network comes into being
COUNTED = ("bytes", "packets", "errs", "drop")  # first columns of /proc/net/dev


class NetworkError(Exception):
    """This machine, or this user, cannot have the network; the sentence says why."""


class Network:
    """A switch, and hosts `host0`, `host1`, ... that reach each other through it.

    Parameters
    ----------
    hosts : int
    rate : int
        What each host can send, in bit/s, headers included; 0 is no limit.
    delay : float
        Seconds from host to host, one way.
    """

    def __init__(self, hosts: int, rate: int = 0, delay: float = 0.0) -> None:
        if not 1 <= hosts <= MOST:
            raise NetworkError(f"there can be 1 to {MOST} hosts, not {hosts}")
        check_tools()
        rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        spaces = ["--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc"]
        script = [sys.executable, str(FOLDER / "bridge.py")]
        numbers = [str(hosts), str(rate), repr(delay)]
        self.hosts = hosts
        self._switch = subprocess.Popen(
            ["unshare", *rights, *spaces, *script, *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C is not for the switch
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        assert self._switch.stdout is not None
        patience = PATIENCE + self.hosts
        if not select.select([self._switch.stdout], [], [], patience)[0]:
            raise NetworkError(f"the network was not ready within {patience} seconds")
        if (first := self._switch.stdout.readline()) != "ready\n":
            raise NetworkError(
                f"cannot make a network of namespaces here ({first.strip()}); "
                "this needs root, or a system whose users may make namespaces"
            )

    def command(self, host: int, command: list[str]) -> list[str]:
        """Return what runs a command on a host, with its exit code and signals."""
        entrance = [sys.executable, str(FOLDER / "nsenter.py"), str(self._switch.pid)]
        return [*entrance, str(AGENT), f"host{host}", "exec", shlex.join(command)]

    def counters(self) -> list[dict[str, int]]:
        """Return what each host's interface has sent (tx) and received (rx) so far.

        Bytes are those of Ethernet frames without checksum: 14 more than the packet's.
        They are read at the other end of the host's link, which is the switch's port.
        """
        if self._switch.poll() is not None:
            raise NetworkError("the network has ended, and its counters with it")
        lines = Path(f"/proc/{self._switch.pid}/net/dev").read_text().splitlines()
        rows = dict(line.strip().split(":") for line in lines[2:])
        found = []
        for host in range(self.hosts):
            numbers = [int(word) for word in rows[f"port{host}"].split()]
            sent = zip((f"tx_{name}" for name in COUNTED), numbers, strict=False)
            got = zip((f"rx_{name}" for name in COUNTED), numbers[8:], strict=False)
            found.append(dict(sent) | dict(got))
        return found

    def close(self) -> None:
        """End the network and all processes in it, which are gone on return."""
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        with contextlib.suppress(OSError):
            self._switch.stdin.close()
        try:
            self._switch.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._switch.kill()
            self._switch.wait()
        self._switch.stdout.close()

    def __enter__(self) -> Network:
        """Return the network, which is ready."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the network, whatever happened."""
        self.close()


def check_tools() -> None:
    """Raise where a command is missing that makes namespaces."""
    if not sys.platform.startswith("linux"):
        raise NetworkError(f"network namespaces need Linux, and this is {sys.platform}")
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise NetworkError(f"needs the command {tool}; install {package}")
