"""Networks of emulated hosts on one machine, and the command `benchmarks/netem`.

Each host is a network namespace; links have a rate and a delay. It needs Linux with
iproute2 and util-linux. It imports `launch` and the standard library.
"""
