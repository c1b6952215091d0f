"""Variables and places of ranks for MPI jobs on emulated hosts."""

from __future__ import annotations

from benchmarks.emulation.network import AGENT

# Make each MPI use only TCP and the agent that replaces ssh. MPICH uses UCX, because
# the TCP of libfabric waits for an answer to each message of more than 128 bytes,
# which adds a delay.
OVER_TCP = {
    "MPIR_CVAR_CH4_NETMOD": "ucx",  # MPICH
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
    "I_MPI_FABRICS": "shm:ofi",  # Intel MPI
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "I_MPI_PIN": "off",  # else each host uses the same first cores
    "OMPI_MCA_pml": "ob1",  # Open MPI
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "PRTE_MCA_plm_ssh_agent": str(AGENT),
    "OMPI_MCA_plm_rsh_agent": str(AGENT),  # before version 5
}


def spread(ranks: int, hosts: int, cyclic: bool = False) -> list[str]:
    """Return the host of each rank: r * hosts // ranks, or r % hosts if cyclic."""
    numbers = (r % hosts if cyclic else r * hosts // ranks for r in range(ranks))
    return [f"host{number}" for number in numbers]
