"""Data sets divided into shards, which are leased to members. A ledger keeps account of each shard.

Every shard ends done or failed exactly once, whichever members are lost; waiting + leased + done +
failed is always the total. The modules, each based on those before it: `shuffle` (the order in
which an epoch is handed out), `dataset` (what a shard is), `runs` (compact sets of numbers),
`account` (the numbers of shards in each state), `checkpoint` (a ledger as bytes, to be saved with a
model), `ledger` (one data set's leases and results), `ledgers` (all data sets, and their common
bounds).
"""

from elasticjob_shards.account import Account, LeasesOfRound
from elasticjob_shards.dataset import Dataset, Shard
from elasticjob_shards.ledger import Ledger
from elasticjob_shards.ledgers import Ledgers

__all__ = ["Account", "Dataset", "LeasesOfRound", "Ledger", "Ledgers", "Shard"]
