"""The former name of `row_cache`, until its last caller has moved."""

from s3dlm.models.row_cache import RowCache as Remembering

__all__ = ["Remembering"]
