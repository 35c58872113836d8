"""Trains hand-written digits with Horovod Elastic, as Horovod's documentation describes it.

The script does not use ElasticJob. Horovod requires this of an elastic script:
- A `State` contains everything that must survive. New workers get it from rank 0.
- `state.commit()` marks a consistent state. Workers join and leave there, and after a failure all
  continue from there.
- An `ElasticSampler` gives each worker a part of the images that this epoch has not used yet.

Environment: EPOCHS (default 30), BATCH_SECONDS (default 0: a pause after each batch, to watch it).
"""

from __future__ import annotations

import os
import time

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", "30"))
BATCH_SECONDS = float(os.environ.get("BATCH_SECONDS", "0"))
TRAINED = 1500  # of the 1,797 images; the rest are test images
BATCH = 25  # images of one worker in one batch

torch.set_num_threads(1)  # the example runs on small machines
hvd.init()
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
training_set = TensorDataset(images[:TRAINED], labels[:TRAINED])
sampler = hvd.elastic.ElasticSampler(training_set)
loader = DataLoader(training_set, batch_size=BATCH, sampler=sampler)

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
    named_parameters=model.named_parameters(),
)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train from the present state. Horovod calls this again in each new world."""
    print(
        f"rank {hvd.rank()} of {hvd.size()}: epoch {state.epoch}, {state.images} images so far",
        flush=True,
    )
    while state.epoch < EPOCHS:
        for batch, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            sampler.record_batch(batch, BATCH)
            state.images += int(hvd.allreduce(torch.tensor(len(x)), name="images", op=hvd.Sum))
            time.sleep(BATCH_SECONDS)
            state.commit()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} done by {hvd.size()}, loss {loss.item():.4f}", flush=True)
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, images=0)
train(state)
with torch.no_grad():
    accuracy = (model(images[TRAINED:]).argmax(1) == labels[TRAINED:]).float().mean().item()
if hvd.rank() == 0:
    print(f"finished: {state.images} images, test accuracy {accuracy:.3f}", flush=True)
