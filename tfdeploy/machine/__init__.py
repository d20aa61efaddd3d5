"""Check who can change files of this machine, and build the command that starts tfdeploy itself."""
