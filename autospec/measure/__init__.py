"""Workloads, load, passes and statistics. Knows no engine: it is handed one."""
