"""Whole convolutional networks, dense and with 75 % of their weights removed, as torch runs them."""

from prunecast import predict

MEASURED = {"resnet50": (1289, 709), "vgg16": (2118, 931), "resnet18": (527, 260)}
"""Microseconds of a pass of 32 images on an H200, dense and pruned: docs/results.md."""
UNPRUNED = {"vgg16": ["stage1.conv1", "fc8"]}

for name, (dense, pruned) in MEASURED.items():
    table = predict(
        name,
        workload="batch:32",
        gpu="h200-sxm",
        runtime="torch",
        engine="model",
        pattern="tile-wise:64",
        sparsity=0.75,
        ignore=UNPRUNED.get(name, ["stem", "classifier"]),
    )
    whole = table.whole
    own, best = 1e6 * whole.dense.seconds, 1e6 * whole.best.seconds
    print(f"{name:8} predicted {own:.0f} -> {best:.0f} us, {own / best:.1f}x", end="; ")
    print(f"measured {dense} -> {pruned} us, {dense / pruned:.1f}x")
