"""One module per verb. Operations take values and a fleet, emit events and return values; they
never print."""
