"""Samples: random data sets, data files, tables as numbers, and which node has which.

It may import `core` and, inside functions, scipy and pyarrow.
"""
