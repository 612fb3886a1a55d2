"""Share groups: the records of a partition that consumers take and acknowledge one by one."""
