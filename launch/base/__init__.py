"""What all commands need: messages, command lines, environments and run folders.

It imports only the standard library, and one module of dadmm that does the same, by its
path (`launch.base.textfiles`). `launch.base.print_settings` imports dadmm; it is a
program that runs in the environment of a job.
"""
