"""Data sets divided into shards, which are leased to members. A ledger keeps account of each shard.

Every shard ends exactly once as done or failed, even if members are lost. The sum of waiting,
leased, done and failed shards is always the total. Each module uses only those before it: `shuffle`
(the order of an epoch), `dataset` (the samples of shards), `account` (the numbers of shards by
state), `checkpoint` (a ledger as bytes), `ledger` (one data set's leases and results), `ledgers`
(all data sets, and their common limits).
"""

from elasticjob_shards.account import Account, LeasesOfRound
from elasticjob_shards.dataset import Dataset, Shard
from elasticjob_shards.ledger import Ledger
from elasticjob_shards.ledgers import Ledgers

__all__ = ["Account", "Dataset", "LeasesOfRound", "Ledger", "Ledgers", "Shard"]
