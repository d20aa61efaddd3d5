"""This package contains only the package `mnist`."""
