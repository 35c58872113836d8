"""Process control for the programs that start others: agent, process node and `elasticjob run`.

It reads the process table, kills whole process trees, reaps children, and ends processes whose
parent was killed.
"""
