"""What each verb takes: one module per verb, so that its help is shown without the modules that
carry it out."""
