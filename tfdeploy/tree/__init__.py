"""List folders on the control machine: code as a Manifest, and a data set as a DataListing."""

from tfdeploy.tree.datasets import DataListing, list_data_set
from tfdeploy.tree.read import read_tree
from tfdeploy.tree.recipe import EnvironmentRecipe, read_recipe
from tfdeploy.tree.sources import read_sources

__all__ = [
    "DataListing",
    "EnvironmentRecipe",
    "list_data_set",
    "read_recipe",
    "read_sources",
    "read_tree",
]
