"""DistributedDataParallel over gloo, as programs for torchrun are written.

The program uses env://, a sampler, and a checkpoint that rank 0 saves.

--dies=R: rank R kills itself in the third epoch of its first attempt.
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LAST = "checkpoints/last.pt"


def train(model, epochs, dies):
    first, rank = 0, dist.get_rank()
    if os.path.exists(LAST):
        saved = torch.load(LAST)
        model.module.load_state_dict(saved["model"])
        first = saved["epoch"] + 1
    print("rank %d of %d begins with epoch %d" % (rank, dist.get_world_size(), first), flush=True)
    inputs = torch.arange(64.0).reshape(64, 1) / 64
    data = TensorDataset(inputs, 3 * inputs)
    sampler = DistributedSampler(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch == 2 and rank == dies and os.environ["TFDEPLOY_TASK_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, LAST + ".new")
            os.rename(LAST + ".new", LAST)
        dist.barrier()
        print("epoch %d loss %.4f" % (epoch, loss.item()), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--dies", type=int, default=-1)
    parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    assert args.local_rank == int(os.environ["LOCAL_RANK"])
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    train(model, args.epochs, args.dies)
    print("weight %.6f" % model.module.weight.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
