"""Checks: guards of compiled programs, the search for what one has found, and verified stages."""
