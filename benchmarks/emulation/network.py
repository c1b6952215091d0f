"""Emulated hosts on one machine, joined by links with a rate and a delay.

Each host is a network namespace with its own host name, shared memory and interface:

    with EmulatedNetwork(hosts=4, rate=10_000_000, delay=0.005) as network:
        subprocess.run(network.command(0, ["ping", "-c", "3", "host3"]))
        network.counters()[3]["rx_bytes"]

It needs no root where users may create namespaces. The end of the `with` block, or of
the process, even by kill -9, ends every process on a host and removes the network.
"""

import contextlib
import os
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
AGENT = FOLDER / "onhost"  # replaces ssh between hosts
TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "mount"}
MAX_HOSTS = 1000  # a bridge has at most 1023 ports
PATIENCE = 60  # seconds, and one for each host, to build the network
COUNTED = ("bytes", "packets", "errs", "drop")  # first columns of /proc/net/dev


class NetworkError(Exception):
    """The network cannot be created on this machine or by this user."""


class EmulatedNetwork:
    """Hosts `host0`, `host1`, ... that are joined by a bridge.

    Parameters
    ----------
    hosts : int
    rate : int
        Limit of what each host sends, in bit/s, headers included; 0 is no limit.
    delay : float
        One-way delay between hosts, in seconds.
    """

    def __init__(self, hosts: int, rate: int = 0, delay: float = 0.0) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise NetworkError(f"there can be 1 to {MAX_HOSTS} hosts, got {hosts}")
        check_tools()
        rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        spaces = ["--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc"]
        script = [sys.executable, str(FOLDER / "bridge.py")]
        numbers = [str(hosts), str(rate), repr(delay)]
        self.hosts = hosts
        self._bridge = subprocess.Popen(
            ["unshare", *rights, *spaces, *script, *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal does not reach it
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        assert self._bridge.stdout is not None
        patience = PATIENCE + self.hosts
        if not select.select([self._bridge.stdout], [], [], patience)[0]:
            raise NetworkError(f"the network was not ready within {patience} seconds")
        if (first := self._bridge.stdout.readline()) != "ready\n":
            raise NetworkError(
                f"cannot create network namespaces ({first.strip()}); "
                "this needs root, or a system whose users may create namespaces"
            )

    def command(self, host: int, command: list[str]) -> list[str]:
        """Return a command that runs a command on a host.

        It has the exit code of the inner command and passes signals on to it.
        """
        enter = [sys.executable, str(FOLDER / "nsenter.py"), str(self._bridge.pid)]
        return [*enter, str(AGENT), f"host{host}", "exec", shlex.join(command)]

    def counters(self) -> list[dict[str, int]]:
        """Return what each host's interface has sent (tx) and received (rx) so far.

        Bytes are those of Ethernet frames without checksum, 14 more than those of a
        packet. They are read at the bridge's end of each link.
        """
        if self._bridge.poll() is not None:
            raise NetworkError("the network has ended, so its counters are gone")
        lines = Path(f"/proc/{self._bridge.pid}/net/dev").read_text().splitlines()
        rows = dict(line.strip().split(":") for line in lines[2:])
        found = []
        for host in range(self.hosts):
            numbers = [int(text) for text in rows[f"port{host}"].split()]
            sent = zip((f"tx_{name}" for name in COUNTED), numbers, strict=False)
            got = zip((f"rx_{name}" for name in COUNTED), numbers[8:], strict=False)
            found.append(dict(sent) | dict(got))
        return found

    def close(self) -> None:
        """End the network and all processes in it, and wait for their end."""
        assert self._bridge.stdin is not None
        assert self._bridge.stdout is not None
        with contextlib.suppress(OSError):
            self._bridge.stdin.close()
        try:
            self._bridge.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._bridge.kill()
            self._bridge.wait()
        self._bridge.stdout.close()

    def __enter__(self) -> "EmulatedNetwork":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def check_tools() -> None:
    if not sys.platform.startswith("linux"):
        raise NetworkError(f"network namespaces need Linux, got {sys.platform}")
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise NetworkError(f"the command {tool} is missing; install {package}")
