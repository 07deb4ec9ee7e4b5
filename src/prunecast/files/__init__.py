"""Read files of limited size, write regular files atomically, and protect inputs from being overwritten.

Before any work, `check_outputs` refuses an output that the same command also reads, or writes twice. Read
first: `guard`.
"""

from prunecast.files.guard import JOURNALS, Output, OutputFile, OutputFolder, check_outputs
from prunecast.files.reading import MIB, check_regular, cut, packaged_toml, parse_json, read_bytes, read_text
from prunecast.files.writing import (
    aside,
    asked_path,
    check_writable,
    folder_aside,
    put_unless_filled,
    write_text_aside,
)

__all__ = [
    "JOURNALS",
    "MIB",
    "Output",
    "OutputFile",
    "OutputFolder",
    "aside",
    "asked_path",
    "check_outputs",
    "check_regular",
    "check_writable",
    "cut",
    "folder_aside",
    "packaged_toml",
    "parse_json",
    "put_unless_filled",
    "read_bytes",
    "read_text",
    "write_text_aside",
]
