"""What all commands need: messages, command lines, environments and run folders.

It imports only the standard library. The one exception is `launch.base.settings`, a
program that runs in the environment of a job and imports dadmm.
"""
