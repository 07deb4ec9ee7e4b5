"""Convolutional networks in torch form: standard ones, ONNX files and modules, with any batch."""

import numpy as np
import onnx
import pytest

from prunecast import predict
from prunecast.codesign.search.prune_model import prune_model
from prunecast.codesign.search.targets import Targets
from prunecast.errors import BadInput
from prunecast.workload import ConvSettings
from tests import onnx_files

TORCH = {"gpu": "h200-sxm", "runtime": "torch", "engine": "model"}


def sparse_rows(table):
    return {row.layer: row for row in table.predictions if row.kernel != "dense"}


def test_tiles_that_are_taller_than_a_layer_get_its_height():
    table = predict("resnet18", workload="batch:8", pattern="tile-wise:128", sparsity=0.75, **TORCH)
    own = sparse_rows(table)
    assert own["stage1.0.conv1"].pattern == "tile-wise:64"
    assert own["stage2.0.conv2"].pattern == "tile-wise:128"
    short = predict(np.ones((48, 64), np.float32), pattern="tile-wise:128", gpu="h200-sxm", engine="model")
    assert {row.pattern for row in sparse_rows(short).values()} == {"tile-wise:48"}
    with pytest.raises(BadInput, match="block:64x64 needs a matrix of 64x64"):
        predict(np.ones((48, 64), np.float32), pattern="block:64x64", gpu="h200-sxm", engine="model")


def test_a_batch_is_filled_up_to_whole_groups():
    def seconds(batch):
        table = predict("resnet18", workload=f"batch:{batch}", pattern="tile-wise:64", sparsity=0.75, **TORCH)
        return sparse_rows(table)["stage1.0.conv1"].seconds

    assert seconds(3) == seconds(8) < seconds(16)


def test_convolutions_have_the_kernel_that_torch_runs():
    table = predict("resnet18", workload="batch:8", sparsity=0.75, **TORCH)
    kernels = {row.kernel for row in table.predictions if row.layer in table.convolutions}
    assert kernels == {"dense", "stspmm"}
    assert any("torch runs sparse convolutions with stspmm" in skipped.reason for skipped in table.skipped)


def test_an_onnx_file_with_convolutions_is_a_network_of_torch(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_files.conv_net(), path)
    own = predict(path, convolutions=ConvSettings(batch=32), sparsity=0.5, **TORCH)
    assert own.whole is not None
    assert own.whole.dense.seconds > 0.0
    onnx.save(onnx_files.gelu_mlp(), path)
    with pytest.raises(BadInput, match="an ONNX file with convolutions"):
        predict(path, **TORCH)


def test_an_onnx_file_counts_its_images(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_files.conv_net(), path)
    table = predict(path, convolutions=ConvSettings(batch=5), gpu="h200-sxm", engine="model")
    assert table.whole.phases[0].words == "5 images"


def test_a_module_is_the_network_that_it_computes():
    torch = pytest.importorskip("torch")
    from tests.torch.test_network import resnet18

    convolutions = ConvSettings(input_size="224x224", batch=32)
    how = {"pattern": "tile-wise:64", "sparsity": 0.75} | TORCH
    own = predict(resnet18().eval(), convolutions=convolutions, ignore=["conv1.weight", "fc.weight"], **how)
    named = predict("resnet18", workload="batch:32", ignore=["stem", "classifier"], **how)
    assert own.whole.dense.seconds == pytest.approx(named.whole.dense.seconds, rel=1e-9)
    assert own.whole.best.seconds == pytest.approx(named.whole.best.seconds, rel=0.02)  # other weights
    with pytest.raises(BadInput, match="a module and the size of its images"):
        predict(resnet18().eval(), **how)
    with pytest.raises(BadInput, match=r"torch\.fx cannot trace the network"):
        predict(Untraceable(torch), convolutions=convolutions, **TORCH)


class Untraceable:
    """A module whose code depends on data."""

    def __new__(cls, torch):
        class Own(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Conv2d(8, 16, 3)

            def forward(self, x):
                return self.conv(x) if x.sum() > 0 else x

        return Own()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.6, 0.75])
def test_a_network_is_pruned_no_more_than_its_time_needs(share):
    """The time is that of the whole pass, in which layers that stay dense run in planes."""
    how = {"gpu": "h200-sxm", "workload": "batch:32", "runtime": "torch", "engine": "model"}
    result = prune_model("resnet18", Targets(latency_share=share), **how).result
    assert 0.95 * share < result.seconds / result.dense_seconds <= share
    assert {layer.kernel for layer in result.layers} <= {"dense", "stspmm", "small-n"}
