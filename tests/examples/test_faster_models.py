"""The examples of faster PyTorch models run from end to end, in small and without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(cwd, script, *options):
    """What a script prints, run outside of the repository, whose `kernels` transformers would import."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, options)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_bert_says_what_its_output_is_off(tmp_path):
    printed = run(tmp_path, "faster_bert/faster_bert.py", "--layers", 1, "--batch", 1, "--tokens", 16)
    share = float(printed.rpartition(": ")[2].rstrip("%\n"))
    assert 0.0 <= share < 1.0


@pytest.mark.slow
def test_a_language_model_is_trained_pruned_and_writes_on(tmp_path):
    size = ("--hidden", 128, "--layers", 1, "--context", 32, "--windows", 2)
    trained = run(
        tmp_path, "faster_llm/1_train_and_prune.py", "--out", tmp_path / "out", "--seconds", 1, *size
    )
    assert trained.count("nats a byte") == 3
    written = run(
        tmp_path, "faster_llm/2_generate.py", tmp_path / "out", "--tokens", 32, "--prompt", "import "
    )
    assert written.count("\nimport ") == 2
    assert "times as fast" in written
