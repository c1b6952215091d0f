"""Build an emulated network, and pass frames between its hosts until stdin closes.

network.py starts it as process 1 of new namespaces. Stdin closes when the process that
started it ends, even by kill -9. The system then ends all processes in the namespaces
and removes hosts, links and names, so that nothing is left and two networks share
nothing.
"""

import array
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

NAMES = Path("/run/netns")  # where `ip netns` keeps the names of hosts
FRAME = 1514  # bytes of a full Ethernet frame, as the interfaces count it
QUEUE = 1000 * FRAME  # bytes that wait for a host's rate: the default queue length
BACKLOG = 1 << 26  # bytes that wait at a port while this process is not scheduled
TURN = 64  # frames that are read from one port before the next
LATE = 0.002  # seconds that a timer may be late without loss of rate
# Without IPv6 announcements, the interfaces count only the traffic of the job.
QUIET = "addrgenmode none" if Path("/proc/sys/net/ipv6/conf").exists() else ""
# Constants of the kernel that Python does not name
SIOCETHTOOL, ETHTOOL_STXCSUM, SO_RCVBUFFORCE, ETH_P_ALL = 0x8946, 0x17, 33, 3


def build(hosts: int, rate: int) -> None:
    """Create the hosts, each with a link to a port; rate in bit/s, 0 for no limit."""
    keep_names_private()
    write_names(hosts)
    for host in range(hosts):
        steps(
            f"netns add host{host}",
            f"link add port{host} type veth peer name far{host}",
            f"link set port{host} up {QUIET}",
        )
        disable_offload(f"far{host}")
        steps(f"link set far{host} netns host{host} name eth0")
        steps(
            "link set lo up",
            f"link set eth0 up {QUIET}",
            f"address add {address(host)}/16 dev eth0 noprefixroute",
            f"route add 10.77.0.0/16 dev eth0 {congestion_control()}",
            host=f"host{host}",
        )
        if rate:
            limit(f"host{host}", rate)


def keep_names_private() -> None:
    """Give `ip netns` a folder that only processes in the network see."""
    place = NAMES
    try:
        NAMES.mkdir(parents=True, exist_ok=True)
    except PermissionError:  # not root, and `ip netns` was never used here
        place = NAMES.parent
    run("mount", "-t", "tmpfs", "tmpfs", str(place))
    NAMES.mkdir(exist_ok=True)


def write_names(hosts: int) -> None:
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address(host)} host{host}" for host in range(hosts)]
    file = NAMES / "names"
    file.write_text("\n".join(lines) + "\n")
    run("mount", "--bind", str(file), "/etc/hosts")
    file.unlink()


def address(host: int) -> str:
    return f"10.77.{(host + 1) // 256}.{(host + 1) % 256}"


def congestion_control() -> str:
    """Return the option for CUBIC; BBR mistakes a busy machine for a slow link."""
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    return "congctl cubic" if "cubic" in known.split() else ""


def disable_offload(interface: str) -> None:
    """Make the system segment and checksum packets before an interface sends them.

    Otherwise up to 64 kB pass between namespaces as one packet without checksum.
    """
    request = array.array("I", [ETHTOOL_STXCSUM, 0])
    place, _ = request.buffer_info()
    with socket.socket() as any_socket:
        order = struct.pack("16sP16x", interface.encode(), place)
        fcntl.ioctl(any_socket, SIOCETHTOOL, order)


def limit(host: str, rate: int) -> None:
    burst = max(2 * FRAME, int(rate / 8 * LATE))
    bucket = ["tbf", "rate", f"{rate}bit", "burst", str(burst), "limit", str(QUEUE)]
    run("tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", *bucket)


def bridge(hosts: int) -> None:
    """Join all ports by a bridge of the kernel, which adds no delay."""
    joined = (f"link set port{host} master bridge" for host in range(hosts))
    steps("link add bridge type bridge mcast_snooping 0", *joined)
    steps(f"link set bridge up {QUIET}")


def steps(*commands: str, host: str = "") -> None:
    """Run several commands of `ip` at once, here or on a host."""
    where = ["-n", host] if host else []
    run("ip", *where, "-batch", "-", text="\n".join(commands) + "\n")


def run(*command: str, text: str = "") -> None:
    """Run one step; exit with its message if it fails."""
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip() or done.returncode}")


def open_port(name: str) -> socket.socket:
    """Return a socket that receives and sends frames of an interface."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with contextlib.suppress(PermissionError):  # then the backlog is 200 kB
        port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BACKLOG)
    port.bind((name, ETH_P_ALL))
    port.setblocking(False)
    return port


def forward(ports: list[socket.socket], delay: float) -> None:
    """Pass every frame on after a delay in seconds, until stdin closes.

    The delay of the kernel, netem, is a module that many kernels do not have.
    """
    learnt: dict[bytes, socket.socket] = {}  # the port of each address
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()  # due, from, frame
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        # not poll or epoll, whose timeouts are in milliseconds
        ready = select.select([sys.stdin, *ports], [], [], pause)[0]
        if sys.stdin in ready:
            return
        for port in set(ports).intersection(ready):
            for frame in arrived(port):
                learnt[frame[6:12]] = port
                waiting.append((time.monotonic() + delay, port, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, source, frame = waiting.popleft()
            known = learnt.get(frame[:6])
            for port in [known] if known else ports:
                if port is not source:
                    with contextlib.suppress(OSError):  # no room: drop it
                        port.send(frame)


def arrived(port: socket.socket) -> Iterable[bytes]:
    with contextlib.suppress(BlockingIOError):
        for _ in range(TURN):
            yield port.recv(FRAME)


def main(hosts: int, rate: int, delay: float) -> None:
    build(hosts, rate)
    ports: list[socket.socket] = []
    if delay:
        ports = [open_port(f"port{host}") for host in range(hosts)]
        with contextlib.suppress(PermissionError):  # needs root; else less exact
            # Polling ranks keep all cores busy, which must not delay frames.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    else:
        bridge(hosts)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reap orphans
    print("ready", flush=True)
    forward(ports, delay)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
