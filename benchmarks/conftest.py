"""Tests of studies have what all tests have."""

from tests.conftest import _tables_as_they_were as _tables_as_they_were
from tests.conftest import undrawn as undrawn
