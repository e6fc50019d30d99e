"""Tests of examples have what all tests have."""

from tests.conftest import _methods_as_they_were as _methods_as_they_were
