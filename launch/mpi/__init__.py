"""launch/mpi."""
