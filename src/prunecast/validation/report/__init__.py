"""Write the validation report, `docs/validation.md` and its figures, from recorded runs only.

Layer: part of `validation`. Read first: `write.py` (the page), then `sections.py` and `groupings.py`.
"""

from prunecast.validation.report.write import report_outputs, write_report

__all__ = ["report_outputs", "write_report"]
