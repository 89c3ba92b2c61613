"""Relay adapters."""
