"""Data sets cut into shards, leased to members and accounted for one by one.

Every shard ends done or failed exactly once, whoever is lost: waiting + leased + done + failed is always the total.
The modules, from the inside out: `shuffle` (the order in which an epoch is handed out), `dataset` (what a shard is),
`runs` (sets of numbers in few bytes), `account` (what is told of a data set), `ledger` (who holds what), `checkpoint`
(the account as bytes, to be kept with a model), `ledgers` (all data sets, and the bounds they share).
"""

from elasticjob_shards.account import Account
from elasticjob_shards.dataset import Dataset, Shard
from elasticjob_shards.ledger import Ledger
from elasticjob_shards.ledgers import Ledgers

__all__ = ["Account", "Dataset", "Ledger", "Ledgers", "Shard"]
