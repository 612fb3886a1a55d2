"""Builds the documentation as a site of static pages: `make docs`, or `python -m tests.site`."""
