"""Share groups: consumers acquire and acknowledge the records of a partition one by one."""
