"""Names that a shell offers, as the shell asks for them."""

import os
import subprocess
import sys

import pytest

from prunecast.cli import completion


def completed(words):
    """What bash is told to offer for the last word."""
    asked = {"_PRUNECAST_COMPLETE": "complete_bash", "COMP_WORDS": words}
    asked["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    command = [sys.executable, "-m", "prunecast"]
    return subprocess.run(
        command, env=os.environ | asked, capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("prunecast predict w.npy --gpu h200", "h200-sxm"),
        ("prunecast predict qwen3-8", "qwen3-8b"),
        ("prunecast predict w.npy --pattern tile-w", "tile-wise"),
        ("prunecast predict w.npy --kernel sts", "stspmm"),
    ],
)
def test_a_shell_is_offered_names(words, offered):
    assert offered in completed(words)


def test_files_of_weights_and_folders_are_offered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama.safetensors", "llama.txt", "l[1].npy"):
        (tmp_path / name).touch()
    (tmp_path / "llamas").mkdir()
    offered = completion.weights("llama")
    assert offered[:2] == ["llama.safetensors", "llamas/"]
    assert "llama-3-8b" in offered
    assert "llama.txt" not in offered
    assert completion.weights("l[") == ["l[1].npy"]
