"""This machine, as the operator uses it: whose files and folders these are, and how tfdeploy starts
itself."""
