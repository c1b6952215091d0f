"""How MPI reaches emulated hosts: over TCP only, by a stand-in for ssh."""

from __future__ import annotations

from benchmarks.emulation.network import AGENT

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
    "I_MPI_PIN": "off",  # each host would use the same first cores
    "OMPI_MCA_pml": "ob1",  # Open MPI
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "PRTE_MCA_plm_ssh_agent": str(AGENT),
    "OMPI_MCA_plm_rsh_agent": str(AGENT),  # before version 5
}


def spread(ranks: int, hosts: int, cyclic: bool = False) -> list[str]:
    """Return the host of each rank: r * hosts // ranks, or r % hosts if cyclic."""
    where = range(ranks)
    return [f"host{r % hosts if cyclic else r * hosts // ranks}" for r in where]
