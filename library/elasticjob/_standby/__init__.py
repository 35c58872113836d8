"""Runs a training program in an interpreter that may have imported the program's modules before.

The agent (elasticjob_agent.standby) starts it as
    python OPTIONS _standby_start.py REPORTS,ORDERS,MEMORY,POSITION python OPTIONS SCRIPT ARGUMENTS
with two pipes, a file in memory, and the position of the script, or of -m, in the command. The file
contains {"imports": null}, and the program is run at once, or an import list: what an earlier run
has imported from site-packages, and the environment and sys.path at that time. This process then
imports it, with {"rests": true} so slowly that others get the CPU, and waits. The agent replaces
the file's content by a further list, and sends the order for more, or by {"environment": …}, and
sends the order to go. With {"launches": true} the program is torchrun, which children.py helps. The
children are started like this process, with a socket in place of the pipe of orders.

The imported modules are hidden until the program imports one of them. If its environment or
sys.path then differs from the list's, or if the imports have read a variable that is different now,
the process replaces itself by a new Python that runs the command.

_standby_start.py loads the package by another name and without `elasticjob`, whose import the
program may see. It uses only the standard library, and runs in Python 3.10 or newer.
"""

GO = b"g"
MORE = b"m"
"""The orders."""
