"""Counters of the sources and their limits: how much there is to own, and what is built more than once."""
