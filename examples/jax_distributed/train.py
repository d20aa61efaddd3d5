"""Two spirals, told apart by a network that several processes train together.

Each process has a part of every batch. jax.distributed finds the others by the variables that
tfdeploy (as torchrun does) sets: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, where rank 0 is the
coordinator. By hand, one process per terminal:

    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=2222 python train.py
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=localhost MASTER_PORT=2222 python train.py
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS = (2, 64, 64, 2)
BATCH = 96  # of each process
RATE = 0.01


def join():
    """Makes this process one of those that train together.

    On a host with GPUs it takes the one of its local rank.
    """
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    own_gpu = [int(os.environ["LOCAL_RANK"])] if os.environ.get("CUDA_VISIBLE_DEVICES") else None
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address="[%s]:%s" % (host, port) if ":" in host else "%s:%s" % (host, port),
        num_processes=int(os.environ["WORLD_SIZE"]),
        process_id=int(os.environ["RANK"]),
        local_device_ids=own_gpu,
    )


def spirals(random, count):
    """Points [count, 2] on two spirals with a little noise, and which of the two each is on."""
    labels = random.integers(2, size=count)
    turn = np.sqrt(random.random(count)) * 2 * np.pi
    angle = turn + np.pi * labels
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 4
    points += 0.02 * random.standard_normal((count, 2))
    return points.astype(np.float32), labels.astype(np.int32)


def fresh():
    """Weights and biases of every layer, the same in each process."""
    random = np.random.default_rng(0)
    sizes = zip(LAYERS, LAYERS[1:], strict=False)
    return [
        (random.normal(0, (2 / n) ** 0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in sizes
    ]


def network(layers, points):
    for weights, bias in layers[:-1]:
        points = jax.nn.relu(points @ weights + bias)
    return points @ layers[-1][0] + layers[-1][1]


def loss_of(layers, points, labels):
    logs = jax.nn.log_softmax(network(layers, points))
    return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))


@jax.jit
def train(layers, means, squares, points, labels):
    """One step of RMSProp with momentum.

    The mean over the whole batch is what makes the processes talk.
    """
    loss, slopes = jax.value_and_grad(loss_of)(layers, points, labels)
    squares = jax.tree.map(lambda old, slope: 0.99 * old + 0.01 * slope**2, squares, slopes)
    means = jax.tree.map(
        lambda old, slope, size: 0.9 * old + 0.1 * slope / jnp.sqrt(size + 1e-8),
        means,
        slopes,
        squares,
    )
    return jax.tree.map(lambda old, mean: old - RATE * mean, layers, means), means, squares, loss


def load(path):
    """(layers, step) of the checkpoint there, or the first ones.

    tfdeploy brings rank 0's `keep` to every host.
    """
    if not os.path.exists(path):
        return fresh(), 0
    with np.load(path) as saved:
        layers = [(saved["weights%d" % n], saved["bias%d" % n]) for n in range(len(LAYERS) - 1)]
        return layers, int(saved["step"])


def save(path, layers, step):
    found = {"step": np.array(step)}
    for number, (weights, bias) in enumerate(layers):
        found["weights%d" % number] = np.asarray(weights)
        found["bias%d" % number] = np.asarray(bias)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    np.savez(path + ".new.npz", **found)
    os.replace(path + ".new.npz", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--checkpoints", default="checkpoints")
    args = parser.parse_args()
    join()
    rank = jax.process_index()
    mesh = Mesh(jax.devices(), ("all",))
    parts, same = NamedSharding(mesh, PartitionSpec("all")), NamedSharding(mesh, PartitionSpec())
    print(
        "process %d of %d, %d devices in all" % (rank, jax.process_count(), jax.device_count()),
        flush=True,
    )

    path = os.path.join(args.checkpoints, "layers.npz")
    layers, step = load(path)
    print("starting at step %d" % step, flush=True)
    layers = jax.tree.map(lambda each: jax.make_array_from_process_local_data(same, each), layers)
    means = jax.tree.map(jnp.zeros_like, layers)
    squares = jax.tree.map(jnp.zeros_like, layers)
    random = np.random.default_rng((step, rank))  # other points in each process
    while step < args.steps:
        batch = (
            jax.make_array_from_process_local_data(parts, each) for each in spirals(random, BATCH)
        )
        layers, means, squares, loss = train(layers, means, squares, *batch)
        step += 1
        if step % 100 == 0 or step == args.steps:
            print("step %d loss %.3f" % (step, loss), flush=True)
            if rank == 0:
                save(path, layers, step)
    points, labels = spirals(np.random.default_rng(2**20), 1000)
    local = jax.tree.map(np.asarray, layers)
    right = np.mean(np.argmax(network(local, points), 1) == labels)
    print("test accuracy: %.3f" % right, flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
