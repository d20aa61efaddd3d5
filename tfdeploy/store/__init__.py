"""Cache data about runs on the control machine (where tfdeploy is called). The hosts hold the same
data."""
