"""Benchmarks: run by hand with ``python -m tests.bench.NAME`` from the top of the tree, never by the tests."""
