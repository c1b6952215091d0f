"""How an MPI is told on which hosts its ranks are, and to use the network between."""

from __future__ import annotations

from commands import banner
from network import AGENT

# Hosts share no memory, so there is only TCP between them; nobody shall look further.
# Each MPI heeds its own variables. MPICH has libfabric's TCP, too, but that waits for
# an answer to each message of more than 128 bytes, which costs a delay more.
OVER_TCP = {
    "MPIR_CVAR_CH4_NETMOD": "ucx",  # MPICH
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
    "I_MPI_FABRICS": "shm:ofi",  # Intel MPI
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "OMPI_MCA_pml": "ob1",  # Open MPI
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "PRTE_MCA_plm_ssh_agent": str(AGENT),
    "OMPI_MCA_plm_rsh_agent": str(AGENT),  # before version 5
}
HYDRA = ("-launcher", "ssh", "-launcher-exec", str(AGENT))
OPEN_MPI = ("--bind-to", "none")  # each host would use the same first cores


def spread(ranks: int, hosts: int) -> list[int]:
    """Return how many ranks each host has: rank r is on host r * hosts // ranks."""
    counts = [0] * hosts
    for rank in range(ranks):
        counts[rank * hosts // ranks] += 1
    return counts


def on_hosts(mpiexec: str, ranks: int, hosts: int, job: list[str]) -> list[str]:
    """Return the command, to be run on `host0`, that runs a job on all hosts."""
    counts = [item for item in enumerate(spread(ranks, hosts)) if item[1]]
    said = banner(mpiexec)
    if "Intel" in said:  # has no numbers beside hosts, but a job for each of them
        command = [mpiexec, *HYDRA]
        for host, count in counts:
            command += ["-host", f"host{host}", "-n", str(count), *job, ":"]
        return command[:-1]
    slots = ",".join(f"host{host}:{count}" for host, count in counts)
    how = OPEN_MPI if "Open" in said else HYDRA
    return [mpiexec, *how, "-host", slots, "-n", str(ranks), *job]
