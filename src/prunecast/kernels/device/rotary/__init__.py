"""Rotary embedding in place."""
