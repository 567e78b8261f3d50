"""Tests of linear algebra."""
