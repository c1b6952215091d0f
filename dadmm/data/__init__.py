"""Samples: random data sets, tables in files, and the division of rows among nodes.

It also turns tables into numbers, and groups samples with missing entries by which
entries are observed. It may import `core` and, inside functions, scipy and pyarrow.
"""
