"""Programs that tests run under mpiexec, and what starts them."""
