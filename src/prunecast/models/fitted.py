"""`FITTED`: numbers of the closed form that were fitted; `fitted.toml` has unit, source and date of each."""

from importlib import resources

from prunecast.hardware.costs import read_entries

FITTED = {
    name: cost.value
    for name, cost in read_entries(resources.files(__package__) / "fitted.toml", "models/fitted.toml").items()
}
"""Name of an entry -> its value, in the entry's unit."""
