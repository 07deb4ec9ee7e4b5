"""Record files of a few rows, as tests need them."""

from prunecast.validation.records import RunWriter

__all__ = ["write_run"]


def write_run(path, header, rows):
    """Write a record file of one run."""
    writer = RunWriter(path, header)
    for row in rows:
        writer.add(row)
    writer.close()
