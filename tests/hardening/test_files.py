"""Outputs replace regular files alone and follow links; reads end; what killed runs left is removed."""

import errno
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from prunecast.codesign.write_pruned import check_folders
from prunecast.errors import BadInput
from prunecast.files import (
    aside,
    check_writable,
    cut,
    folder_aside,
    parse_json,
    read_bytes,
    write_text_aside,
)


def special(folder, kind):
    """Something that is no regular file, called `there`."""
    path = folder / "there"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/null")
    else:
        import socket

        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    return path


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a device", "a socket"])
def test_only_regular_files_are_replaced_and_read(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = Path(special(Path(), kind))
    before = os.stat(path)
    with pytest.raises(BadInput, match=f"got {kind}"):
        write_text_aside(path, "new")
    with pytest.raises(BadInput, match=f"wanted a spec, got {kind}"):
        read_bytes(path, "a spec", most=10)
    assert os.stat(path).st_ino == before.st_ino
    assert [entry.name for entry in tmp_path.iterdir()] == ["there"]


def test_a_device_node_stays_what_it_is(tmp_path):
    node = tmp_path / "node"
    try:
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes device nodes")
    with pytest.raises(BadInput, match="got a device"):
        write_text_aside(node, "new")
    assert stat.S_ISCHR(os.lstat(node).st_mode)


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target.csv"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link.csv"
    link.symlink_to(target)
    write_text_aside(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere" / "made")
    write_text_aside(tmp_path / "dangling", "new")
    assert (tmp_path / "elsewhere" / "made").read_text() == "new"


def write_both(path):
    with folder_aside(path, last="b") as folder:
        (folder / "a").write_text("a")
        (folder / "b").write_text("b")


def test_folders_follow_links_too(tmp_path):
    for name in ("out", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere" / "a")
    write_both(tmp_path / "out")
    assert (tmp_path / "elsewhere" / "a").read_text() == "a"
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"]


def test_a_folder_with_something_else_in_it_is_left_as_it_was(tmp_path):
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "b").write_text("old")
    with pytest.raises(BadInput, match="got a folder"):
        write_both(tmp_path / "out")
    assert (tmp_path / "out" / "b").read_text() == "old"


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_names_that_cannot_be(tmp_path, name):
    with pytest.raises(BadInput):
        check_writable(tmp_path / name, "-o")
    with pytest.raises(BadInput):
        read_bytes(tmp_path / name, "a spec", most=1)


def test_a_current_folder_that_is_deleted(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BadInput, match=r"-o cannot be out\.json: No such file or directory"):
        check_writable("out.json", "-o")
    assert check_writable(tmp_path / "out.json", "-o") == tmp_path / "out.json"


def test_a_long_name_has_room_for_its_twin(tmp_path):
    write_text_aside(tmp_path / ("ä" * 127), "new")
    assert (tmp_path / ("ä" * 127)).read_text() == "new"


def hold(path, ready):
    with aside(path) as unfinished:
        unfinished.write_text("half")
        ready.set()
        time.sleep(1800)


def test_what_a_killed_process_left_goes_with_the_next_and_what_a_living_one_has_stays(tmp_path):
    path = tmp_path / "a.json"
    context = multiprocessing.get_context("fork")
    ready = [context.Event(), context.Event()]
    killed, living = (context.Process(target=hold, args=(path, event)) for event in ready)
    for process, event in zip((killed, living), ready, strict=True):
        process.start()
        assert event.wait(1800)
    assert len(list(tmp_path.iterdir())) == 2
    killed.kill()
    killed.join()
    (tmp_path / ".b.json.prunecast-0").mkdir()  # of another file
    write_text_aside(path, "new")
    assert len(list(tmp_path.iterdir())) == 3  # the file, what is being written, the other's
    living.kill()
    living.join()
    write_text_aside(path, "newer")
    assert sorted(os.listdir(tmp_path)) == [".b.json.prunecast-0", "a.json"]


def test_a_folder_that_others_always_remove_is_an_error_and_no_endless_loop(tmp_path, monkeypatch):
    def removed(folder):
        raise FileNotFoundError(errno.ENOENT, "removed", str(folder))

    monkeypatch.setattr("prunecast.files.writing._opened", removed)
    with (
        pytest.raises(BadInput, match=r"cannot write .*removed its unfinished folder"),
        folder_aside(tmp_path / "out"),
    ):
        pass


def test_a_file_that_the_caller_misses_is_the_callers_error(tmp_path):
    with pytest.raises(BadInput, match="No such file"), folder_aside(tmp_path / "out") as folder:
        (folder / "missing").read_text()
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_disk_is_one_line_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(BadInput, match=r"cannot write .*No space left"), aside(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.read_text() == "old"


def test_files_end(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", "a spec", most=5) == b"12345"
    with pytest.raises(BadInput, match="a spec of at most 4 bytes, got more"):
        read_bytes(tmp_path / "a", "a spec", most=4)


@pytest.mark.parametrize("text", ["1e999", "[-1e400]", "NaN", "Infinity", "9" * 21])
def test_numbers_that_are_none(text):
    with pytest.raises(ValueError, match=r"number|digits"):
        parse_json(text)


def test_long_texts_keep_both_ends():
    assert cut("a" * 10, 10) == "a" * 10
    short = cut("a" * 50 + "b" * 50, 30)
    assert (len(short), short[0], short[-1]) == (30, "a", "b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_without_permission_is_refused_before_any_work(tmp_path):
    locked(tmp_path)


def test_a_folder_that_the_system_says_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    locked(tmp_path)


def locked(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(BadInput, match="-o must lie in a folder that can be written"):
        check_writable(folder / "out.json", "-o")
    for place in (folder, folder / "new"):
        with pytest.raises(BadInput, match="out must be a folder that can be written"):
            check_folders([place], {})
