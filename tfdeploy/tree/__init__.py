"""Read what is in a folder: code as a Manifest with its release hash, data sets as listings. Reads
only."""

from tfdeploy.tree.datasets import DataListing, read_data
from tfdeploy.tree.read import read_tree
from tfdeploy.tree.recipe import Recipe, read_recipe
from tfdeploy.tree.sources import read_sources

__all__ = ["DataListing", "Recipe", "read_data", "read_recipe", "read_sources", "read_tree"]
