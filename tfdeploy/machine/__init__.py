"""Check who can change files of this machine, and build commands that start tfdeploy itself."""
