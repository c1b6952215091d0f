"""Run a command in the namespaces of a network, and pass signals on to it.

The command nsenter does not pass them on to the child that it starts.
"""

import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

KINDS = ("user", "pid_for_children", "net", "mnt")  # user first, for its rights
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def enter(process: int) -> None:
    """Enter the namespaces of a process, and keep the current directory."""
    folder = os.getcwd()
    try:
        handles = [
            os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY)
            for kind in KINDS
            if not same_namespace(process, kind)
        ]
    except FileNotFoundError:
        sys.exit("dadmm: the network has ended")
    libc = ctypes.CDLL(None, use_errno=True)
    for handle in handles:
        if libc.setns(handle, 0):
            reason = os.strerror(ctypes.get_errno())
            sys.exit(f"dadmm: cannot enter the network: {reason}")
        os.close(handle)
    os.chdir(folder)


def same_namespace(process: int, kind: str) -> bool:
    """Return whether a process shares our namespace, which cannot be entered again."""
    other, own = (os.stat(f"/proc/{name}/ns/{kind}") for name in (process, "self"))
    return os.path.samestat(other, own)


def run(command: list[str]) -> int:
    """Run a command to its end and return its exit code, as a shell would."""
    early: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if child is None:
            early.append(signum)
        else:
            child.send_signal(signum)

    for signum in PASSED_ON:
        signal.signal(signum, pass_on)
    child = subprocess.Popen(command)
    for number in early:
        child.send_signal(number)
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    enter(int(sys.argv[1]))
    sys.exit(run(sys.argv[2:]))
