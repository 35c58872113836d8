"""Process control for all programs that start others: the agent, the process node, `elasticjob run`.

It reads the process table, kills whole process trees, reaps children, and ends processes whose
parent was killed.
"""
