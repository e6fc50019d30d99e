"""The files of the shipped model `tiny`; data only."""
