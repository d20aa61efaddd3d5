"""This package contains only the package `tutorials.mnist`."""
