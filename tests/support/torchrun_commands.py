"""Commands with and without options of torchrun that the agent sets."""

from __future__ import annotations

COMMANDS = [
    ("torchrun --standalone train.py", "--standalone"),
    ("torchrun --standalone $SCRIPT", "--standalone"),
    ("torchrun --nnodes 2 train.py", "--nnodes"),
    ("torchrun --nproc-per-node=gpu train.py", "--nproc-per-node=gpu"),
    ("torchrun --max_restarts=3 --log_dir d train.py", "--max_restarts=3"),
    ("torchrun --nnodes=1:4 --max-restarts 3 train.py", "--nnodes=1:4 --max-restarts"),
    ("python -m torch.distributed.run --rdzv_backend=c10d train.py", "--rdzv_backend=c10d"),
    ("sh -c 'cd /x && torchrun --max_restarts=3 train.py; echo'", "--max_restarts=3"),
    ("bash -c 'exec torchrun --log_dir d \\\n \"--nnodes=2\" t.py'", "--nnodes=2"),
    ("torchrun --log_dir d train.py", ""),
    ("torchrun train.py --nnodes 2", ""),
    ("torchrun -m trainer --master_port 1", ""),
    ("torchrun --no_python ./train --nnodes=2", ""),
    ("python train.py --standalone", ""),
    ("torchrun --nnodes=$(PET_NNODES) --nproc_per_node $(SLOTS) train.py", ""),
    ("sh -c 'torchrun --nnodes=$PET_NNODES train.py'", ""),
    ("sh -c 'torchrun --log_dir d train.py; ./x --nnodes=2'", ""),
    ("sh -c 'torchrun --standalone check.py && torchrun train.py'", ""),
    ("bash run.sh torchrun --nnodes=2", ""),
]
"""Each command, with the words of it that are refused."""
